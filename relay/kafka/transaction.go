package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// attempt is a transaction. Acknowledgements may come after it has failed.
type attempt struct {
	mu      sync.Mutex
	pending map[*streamBatch]int   // number of records without an acknowledgement
	errs    map[*streamBatch]error // the first error of a record
}

var errSilence = errors.New("kafka does not answer")

// commit writes the events of streams in one transaction: all or none. After an error,
// failed has the streams that have caused it; if it is empty, Kafka has.
func (l *life) commit(ctx context.Context, streams []*streamBatch) (failed map[*streamBatch]error, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A batch may take long, but not while nothing is acknowledged.
	silence := time.AfterFunc(l.timeout, func() { cancel(fmt.Errorf("%w for %v", errSilence, l.timeout)) })
	defer silence.Stop()
	if err := l.client.BeginTransaction(); err != nil {
		return nil, explain(fmt.Errorf("begin a transaction: %w", err))
	}
	a := &attempt{pending: map[*streamBatch]int{}, errs: map[*streamBatch]error{}}
	for _, b := range streams {
		for _, r := range b.records {
			a.sent(b)
			l.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
				if err == nil {
					silence.Reset(l.timeout)
				}
				a.acknowledged(b, err)
			})
		}
	}
	if err := l.client.Flush(ctx); err != nil {
		return a.failures(streams, context.Cause(ctx))
	}
	if failed, err := a.failures(streams, nil); err != nil {
		return failed, err
	}
	silence.Reset(l.timeout)
	if err := l.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return nil, explain(fmt.Errorf("commit: %w", err))
	}
	return nil, nil
}

// settle waits until the records of a commit can be read. Until then a crash of the last
// replica of a partition may hide them for good; see endForgotten.
func (l *life) settle(ctx context.Context, streams []*streamBatch) error {
	topics := map[string]*topic{}
	for _, b := range streams {
		topics[b.name] = b.topic
	}
	errs, err := l.awaitMarks(ctx, topics)
	if err != nil {
		return err
	}
	for _, b := range streams {
		if b.err = errs[b.name]; b.err != nil {
			l.forget(b.name) // it has the events, or will not: the next attempt compares them
			continue
		}
		b.done = true
		for _, e := range b.events {
			b.topic.highest = max(b.topic.highest, e.ID)
		}
	}
	return nil
}

func (a *attempt) sent(b *streamBatch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending[b]++
}

func (a *attempt) acknowledged(b *streamBatch, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending[b]--
	if a.errs[b] == nil {
		a.errs[b] = err
	}
}

// failures returns the streams that have failed, and an error if any has. silent is the
// error of those without an acknowledgement.
func (a *attempt) failures(streams []*streamBatch, silent error) (map[*streamBatch]error, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	failed, first := map[*streamBatch]error{}, silent
	for _, b := range streams {
		err := a.errs[b]
		if ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded); ended || err == nil && a.pending[b] > 0 {
			err = cmp.Or(silent, err)
		}
		if err == nil {
			continue
		}
		if isFenced(err) {
			return nil, explain(err)
		}
		failed[b] = explain(err)
		if first == nil {
			first = failed[b]
		}
	}
	if first == nil {
		return nil, nil
	}
	if len(failed) == len(streams) {
		failed = nil
	}
	return failed, first
}
