package posthorn

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
)

// ReaderConfig says where a [Reader] begins, and what it does at the end.
type ReaderConfig struct {
	// From is where to begin. Default: [Beginning].
	From Moment
	// Cursor goes on where another reader stood, see [Reader.Cursor]. From is
	// then left out.
	Cursor string
	// Follow waits for more at the end of the log. Default: to stop there.
	Follow bool
	// Sealed leaves the payloads of confidential streams as they are in the log.
	// Default: they are opened, see [Config].Seal.
	Sealed bool
	// BatchSize is how many events are read at once, and so how many may come
	// again after [Reader.Cursor]. Default: 100.
	BatchSize int
}

// Reader reads the log of a namespace without a group: it takes nothing from
// anyone, and whoever reads keeps the cursor. It is for one goroutine at a time.
type Reader struct {
	client *Client
	config ReaderConfig
	cursor string
}

// Reader returns a reader. It holds nothing and needs no closing.
func (c *Client) Reader(config ReaderConfig) *Reader {
	if !config.From.Valid {
		config.From = Beginning
	}
	config.BatchSize = cmp.Or(config.BatchSize, 100)
	return &Reader{client: c, config: config, cursor: config.Cursor}
}

// Cursor is where a reader can go on: after the last batch that the loop was done
// with. It skips nothing; if the loop was left in the middle of a batch, the
// events of that come again. It is "" before anything was read.
func (r *Reader) Cursor() string { return r.cursor }

// Events yields the events after the cursor, in the order in which groups see
// them, until it has caught up or, when it follows, until ctx ends. Nothing is
// skipped, in whatever order transactions commit. It ends after an error; calling
// Events again goes on from the cursor.
//
// An event of a confidential stream that never opens again comes without payload
// and with [ErrSealed]; the loop may go on after it. While it does not open yet,
// the loop ends.
func (r *Reader) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := r.read(ctx, yield)
		if err != nil && (ctx.Err() == nil || !r.config.Follow) {
			yield(Event{}, err)
		}
	}
}

// read returns an error unless the loop, or what there is, has ended.
func (r *Reader) read(ctx context.Context, yield func(Event, error) bool) error {
	c := r.client
	news, end := c.watch.Subscribe()
	defer end()
	if r.config.Follow {
		defer c.watch.KeepRunning()()
	}
	for {
		batch, next, err := r.next(ctx)
		if err != nil {
			return err
		}
		for _, e := range batch {
			var failed error
			if !r.config.Sealed {
				failed = c.box.Open(ctx, c.namespace, &e)
			}
			switch {
			case failed != nil && !sealing.IsFinal(failed):
				return failed
			case failed != nil:
				e.Payload = nil
			}
			if !yield(Event(e), failed) {
				return nil
			}
		}
		r.cursor = next
		switch {
		case len(batch) > 0:
		case !r.config.Follow:
			return nil
		default:
			if err := r.await(ctx, news); err != nil {
				return err
			}
		}
	}
}

func (r *Reader) next(ctx context.Context) ([]pg.Event, string, error) {
	leave, err := r.client.enter()
	if err != nil {
		return nil, "", err
	}
	defer leave()
	if r.cursor == "" {
		if r.cursor, err = pg.CursorAt(ctx, r.client.control, r.config.From); err != nil {
			return nil, "", err
		}
	}
	return pg.ReadEvents(ctx, r.client.control, r.client.namespace, r.cursor, r.config.BatchSize)
}

// readerPoll is how often a reader looks for what there was no news of: an event
// whose transaction stayed open for long.
const readerPoll = 250 * time.Millisecond

func (r *Reader) await(ctx context.Context, news <-chan struct{}) error {
	timer := time.NewTimer(readerPoll)
	defer timer.Stop()
	select {
	case <-news:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-r.client.closing:
		return ErrClosed
	}
	return nil
}
