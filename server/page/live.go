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
// show the same share one rendering, and all renderings of a process share an
// allowance of time, so that many or expensive pages are renewed less often.

const (
	eventStream  = "text/event-stream"
	livePace     = 2 * time.Second // between two renderings of a page, at least
	liveShare    = 0.005           // of the time may be spent on renderings
	liveCredit   = 200 * time.Millisecond
	liveRest     = 15 * time.Second // at most between two renderings, also of an expensive page
	liveComment  = 15 * time.Second // after so long without news the stream says that it is there
	liveTimeout  = 10 * time.Second // for the browser to take what is sent
	mostWatching = 1000
)

// rendering is a page as it was, and when to render it next.
type rendering struct {
	html []byte
	hash uint64
	next time.Time
}

// allowance is time that may be spent. It grows with time and is bounded by a credit.
type allowance struct {
	mu    sync.Mutex
	saved time.Duration
	at    time.Time
}

// spend takes away time that was spent, and returns when there is some again.
func (a *allowance) spend(took time.Duration) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.saved = min(liveCredit, a.saved+time.Duration(float64(now.Sub(a.at))*liveShare)) - took
	a.saved = max(a.saved, -time.Duration(float64(liveRest)*liveShare))
	a.at = now
	if a.saved >= 0 {
		return now
	}
	return now.Add(time.Duration(float64(-a.saved) / liveShare))
}

// follow sends a page whenever it has changed.
func (p *Pages) follow(w http.ResponseWriter, r *Request) {
	if p.watching.Add(1) > mostWatching {
		p.watching.Add(-1)
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer p.watching.Add(-1)
	ctx := r.http.Context()
	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // for nginx
	stream := &stream{w: w, control: http.NewResponseController(w)}
	var last uint64
	for {
		latest, err := p.latest(ctx, r)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil:
			err = stream.send("trouble", []byte(p.Door.Problem(ctx, err).Detail))
			latest.next = time.Now().Add(livePace)
		case latest.hash != last:
			last = latest.hash
			err = stream.send("main", bytes.ReplaceAll(latest.html, []byte(p.stand), []byte(p.formToken(r.http))))
		default:
			err = stream.comment()
		}
		if err != nil || !p.rest(ctx, latest.next) {
			return
		}
		// The token may have been revoked since, or a stream restricted.
		caller, err := p.Door.Admit(r.http, r.Namespace, cookie(r.http, tokenCookie))
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

// rest waits until a time, and tells whether to go on then.
func (p *Pages) rest(ctx context.Context, until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-p.Drained:
		return false
	case <-timer.C:
		return true
	}
}

// latest is a page as all show it who may see the same.
func (p *Pages) latest(ctx context.Context, r *Request) (rendering, error) {
	key := fmt.Sprintf("%q", []any{r.Namespace, r.path, r.values.Encode(), r.Hidden, r.Scopes})
	return p.rendered.Get(ctx, key, func(ctx context.Context) (rendering, time.Time, error) {
		began := time.Now()
		html, err := p.main(ctx, r)
		if err != nil {
			return rendering{}, time.Time{}, err
		}
		hash := fnv.New64a()
		_, _ = hash.Write(html) // never fails
		next := p.live.spend(time.Since(began))
		if soonest := time.Now().Add(livePace); next.Before(soonest) {
			next = soonest
		}
		return rendering{html, hash.Sum64(), next}, next, nil
	})
}

// stream writes server-sent events.
type stream struct {
	w         http.ResponseWriter
	control   *http.ResponseController
	commented time.Time
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
