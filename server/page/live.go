package page

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A page that is live sends itself anew over server-sent events, as long as a browser
// shows it: the browser closes the connection while the page is hidden. Browsers that
// show the same share one rendering, and all pages together may take a share of the
// time, of which each has an equal part: a page rests in proportion to its own cost and
// to the number of pages, so that many or expensive pages are renewed less often. But a page that is more than 15 seconds
// old says so: the answers that a rendering uses rest answerRest at most, the rendering liveRest, and a browser that waits
// longer than livePatience for the next one is told.

const (
	eventStream  = "text/event-stream"
	livePace     = 2 * time.Second  // between two renderings of a page, at least
	liveShare    = 0.005            // of the time may be spent on renderings
	liveRest     = 8 * time.Second  // between two renderings of a page, at most
	livePatience = 2 * time.Second  // after so long without an answer of the database a page says how old it is
	liveParallel = 4                // so many pages are rendered at a time
	liveComment  = 15 * time.Second // after so long without news the stream says that it is there
	liveTimeout  = 10 * time.Second // for the browser to read a message
	mostWatching = 1000
)

// rendering is a page as it was, and when to render it next.
type rendering struct {
	title string
	html  []byte
	hash  uint64
	next  time.Time
	began time.Time // its first query
}

// restAfter is how long one of some pages rests after a rendering that took some time.
func restAfter(took time.Duration, pages int, least time.Duration) time.Duration {
	return min(max(least, time.Duration(float64(took)*float64(pages)/liveShare)), liveRest)
}

// audience counts the browsers that follow each page.
type audience struct {
	mu       sync.Mutex
	browsers int
	pages    map[string]int
}

// enter adds a browser, and returns a function that takes it away; nil if there are too
// many.
func (a *audience) enter(page string) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.browsers == mostWatching {
		return nil
	}
	a.browsers++
	a.pages[page]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.browsers--
		if a.pages[page]--; a.pages[page] == 0 {
			delete(a.pages, page)
		}
	}
}

// different is the number of pages that differ.
func (a *audience) different() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.pages)
}

// size is the number of browsers.
func (a *audience) size() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.browsers
}

// follow sends a page whenever it has changed.
func (p *Pages) follow(w http.ResponseWriter, r *Request) {
	leave := p.audience.enter(r.key())
	if leave == nil {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	ctx := r.http.Context()
	stream := openStream(w)
	var last uint64
	for {
		latest, isLate, err := p.awaitLatest(ctx, r, stream)
		if ctx.Err() != nil {
			return
		}
		if isLate { // the browser says that it waits
			last = 0
		}
		switch {
		case err != nil:
			err = stream.send("trouble", []byte("This page is out of date: "+p.Door.Problem(ctx, err).Detail))
			last = 0
			latest.next = time.Now().Add(livePace)
		case latest.hash != last:
			last = latest.hash
			err = stream.send("main", bytes.ReplaceAll(latest.html, []byte(p.stand), []byte(p.formToken(r.http))))
		default:
			err = stream.comment()
		}
		if err != nil {
			return
		}
		told, goOn := p.rest(ctx, stream, latest)
		if !goOn {
			return
		}
		if told {
			last = 0 // the next rendering takes it back
		}
		// The token may have been revoked since, or a stream restricted.
		caller, err := p.Door.Admit(r.http, r.Namespace, p.cookieOf(r.http, tokenCookie))
		if err != nil {
			if p.Door.Problem(ctx, err).Status < http.StatusInternalServerError {
				_ = stream.send("gone", []byte("reload")) // the page then says why
				return
			}
			continue
		}
		r.Caller = caller
	}
}

// awaitLatest returns the newest rendering of a page. If that takes long, it tells the browser how old the page is.
func (p *Pages) awaitLatest(ctx context.Context, r *Request, s *stream) (latest rendering, isLate bool, err error) {
	for {
		waiting, cancel := context.WithTimeout(ctx, livePatience)
		latest, err = p.latest(waiting, r)
		gaveUp := err != nil && waiting.Err() != nil && ctx.Err() == nil
		cancel()
		if !gaveUp {
			return latest, isLate, err
		}
		isLate = true
		last, _, _ := p.rendered.Last(r.key())
		if err := s.send("trouble", []byte(tooOld(last.began))); err != nil {
			return latest, isLate, err
		}
	}
}

// tooOld says that the database does not answer, and how old a page is.
func tooOld(at time.Time) string {
	if at.IsZero() {
		return "The database answers slowly, and this page is out of date."
	}
	return "The database answers slowly: this page is " + period(time.Since(at).Seconds()) + " old."
}

// mostAge is the age of content from which a page says how old it is.
const mostAge = 15 * time.Second

// isOld reports whether content is that old whose first query began at a time: of a slow database it may be so when it is
// there at last. No time: it is that of an action.
func isOld(began time.Time) bool { return !began.IsZero() && time.Since(began) > mostAge }

// rest waits until the next rendering is due. A page that may become too old before that one is there says so: of a slow
// database even the answer whether the browser may go on takes a while.
func (p *Pages) rest(ctx context.Context, s *stream, latest rendering) (told, goOn bool) {
	soon := latest.began.Add(mostAge - 2*livePatience)
	if !latest.began.IsZero() && latest.next.After(soon) {
		if !p.wait(ctx, soon) || s.send("trouble", []byte(tooOld(latest.began))) != nil {
			return false, false
		}
		told = true
	}
	return told, p.wait(ctx, latest.next)
}

// wait waits until a time, and tells whether to go on then.
func (p *Pages) wait(ctx context.Context, until time.Time) bool {
	return waitUntil(ctx, p.Drained, until)
}

func waitUntil(ctx context.Context, drained <-chan struct{}, until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-drained:
		return false
	case <-timer.C:
		return true
	}
}

// key names a page together with everything on which its content depends.
func (r *Request) key() string {
	return fmt.Sprintf("%q", []any{r.Namespace, r.path, r.values.Encode(), r.Hidden, r.Scopes})
}

// latest is the newest rendering of a page, shared by all callers with the same rights.
func (p *Pages) latest(ctx context.Context, r *Request) (rendering, error) {
	return p.rendered.Get(ctx, r.key(), func(ctx context.Context) (rendering, time.Time, error) {
		began := time.Now()
		title, html, err := p.main(ctx, r)
		if err != nil {
			return rendering{}, time.Time{}, err
		}
		hash := fnv.New64a()
		_, _ = hash.Write(html) // never fails
		next := time.Now().Add(restAfter(time.Since(began), p.audience.different(), livePace))
		return rendering{title, html, hash.Sum64(), next, began}, next, nil
	})
}

// stream writes server-sent events.
type stream struct {
	w         http.ResponseWriter
	control   *http.ResponseController
	commented time.Time
}

func openStream(w http.ResponseWriter) *stream {
	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // for nginx
	return &stream{w: w, control: http.NewResponseController(w)}
}

func (s *stream) send(event string, data []byte) error {
	var message bytes.Buffer
	message.WriteString("event: " + event + "\n")
	for line := range strings.Lines(string(data)) {
		message.WriteString("data: " + strings.TrimRight(line, "\r\n") + "\n")
	}
	message.WriteString("\n")
	return s.write(message.Bytes())
}

// comment says now and then that the stream is there.
func (s *stream) comment() error {
	if time.Since(s.commented) < liveComment {
		return nil
	}
	return s.write([]byte(":\n\n"))
}

func (s *stream) write(message []byte) error {
	s.commented = time.Now()
	_ = s.control.SetWriteDeadline(time.Now().Add(liveTimeout)) // not every connection can; net/http's can
	if _, err := s.w.Write(message); err != nil {
		return err
	}
	return s.control.Flush()
}
