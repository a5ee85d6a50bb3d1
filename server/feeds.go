package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
)

const (
	maxFeeds  = 20          // namespaces at once, besides the client's own
	feedLasts = time.Minute // after its last stream
)

// feeds are the clients that streams listen with, one for each namespace: all
// streams of it share one read of the log. A client keeps a connection that
// hears of news and one that reads, and up to four more while streams begin; so
// there are only so many.
type feeds struct {
	client *posthorn.Client // the server's; its own namespace needs no other
	most   int              // maxFeeds, but in tests
	log    *slog.Logger

	mu     sync.Mutex
	feeds  map[string]*feed
	closed bool // none outlasts its streams any more
}

type feed struct {
	opened chan struct{} // closed when there is a client, or an error
	client *posthorn.Client
	err    error

	users int         // guarded by the lock of the feeds, as is idle
	idle  *time.Timer // closes it
}

func newFeeds(client *posthorn.Client, log *slog.Logger) *feeds {
	return &feeds{client: client, most: maxFeeds, log: log, feeds: map[string]*feed{}}
}

// use returns the client of a namespace. It has to be released.
func (fs *feeds) use(ctx context.Context, namespace string) (client *posthorn.Client, release func(), err error) {
	if namespace == fs.client.Namespace() {
		return fs.client, func() {}, nil
	}
	if err := admin.New(fs.client.Pool(), namespace).CheckNamespace(ctx); err != nil {
		return nil, nil, err
	}
	f, err := fs.join(namespace)
	if err != nil {
		return nil, nil, err
	}
	select {
	case <-f.opened:
		err = f.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		fs.leave(namespace, f)
		return nil, nil, err
	}
	return f.client, func() { fs.leave(namespace, f) }, nil
}

// join finds the feed of a namespace, or opens one.
func (fs *feeds) join(namespace string) (*feed, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.feeds[namespace]
	if f == nil {
		if len(fs.feeds) >= fs.most && !fs.dropIdle() {
			return nil, unavailable("there are streams of as many namespaces as this server may serve", "Try again later, or on another server.")
		}
		f = &feed{opened: make(chan struct{})}
		fs.feeds[namespace] = f
		go fs.open(namespace, f)
	}
	if f.idle != nil {
		f.idle.Stop()
		f.idle = nil
	}
	f.users++
	return f, nil
}

// open is not for the one who came first only, so it goes on without it.
func (fs *feeds) open(namespace string, f *feed) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	f.client, f.err = posthorn.Open(ctx, posthorn.Config{Pool: fs.client.Pool(), Namespace: namespace, Logger: fs.log})
	close(f.opened)
}

// leave closes a feed some time after its last stream, or at once if it is no
// good or the server stops.
func (fs *feeds) leave(namespace string, f *feed) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.users--
	if f.users > 0 {
		return
	}
	if fs.closed || !f.isGood() {
		fs.drop(namespace, f)
		return
	}
	f.idle = time.AfterFunc(feedLasts, func() {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		if f.users == 0 {
			fs.drop(namespace, f)
		}
	})
}

// isGood reports whether it is open, or may yet be.
func (f *feed) isGood() bool {
	select {
	case <-f.opened:
		return f.err == nil
	default:
		return true
	}
}

// drop closes a feed that nobody uses. The caller holds the lock.
func (fs *feeds) drop(namespace string, f *feed) {
	if f.idle != nil {
		f.idle.Stop()
	}
	if fs.feeds[namespace] != f {
		return // closed before
	}
	delete(fs.feeds, namespace)
	go func() {
		<-f.opened
		if f.err == nil {
			f.client.Close()
		}
	}()
}

// dropIdle makes room. The caller holds the lock.
func (fs *feeds) dropIdle() bool {
	for namespace, f := range fs.feeds {
		if f.users == 0 {
			fs.drop(namespace, f)
			return true
		}
	}
	return false
}

// drain closes the feeds that nobody uses, and the others after their last
// stream.
func (fs *feeds) drain() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.closed = true
	for fs.dropIdle() {
	}
}
