package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/webhook/send"
	"github.com/posthorn/posthorn/internal/worker"
)

// Config describes how this process sends to webhooks.
type Config struct {
	Pool  *pg.Pool
	Owner string // sender-{host}-{pid}-{8 hex}

	// Send makes a request. Its error is that no answer came.
	Send func(ctx context.Context, r send.Request) (send.Answer, error)
	// Open opens the payload of a confidential stream. An error that is final is a
	// [worker.PermanentError].
	Open func(ctx context.Context, namespace string, e *pg.Event) error
	// News returns a channel that receives when there may be events to read, until end
	// is called.
	News func() (news <-chan struct{}, end func())

	LeaseFor  time.Duration // after which another process leads if this one has died
	IdlePoll  time.Duration // how often to look for events without a notification
	FindEvery time.Duration // how often to look for namespaces with webhooks

	Log     *slog.Logger
	Observe Observer
}

// Observer observes requests and outcomes of events. Webhook is its name, after the
// namespace if that is another one than the observer's.
type Observer interface {
	// Sending is called before a request. Its context is that of the request.
	Sending(ctx context.Context, namespace, webhook string, events []pg.Event) context.Context
	// Sent is called after the request. The error is nil if the endpoint took the events.
	Sent(ctx context.Context, namespace, webhook string, events []pg.Event, took time.Duration, err error)
	// Failed counts failed events, and those of them that became dead letters.
	Failed(namespace, webhook string, failed, dead int)
	// LeadLost is called when a lead was lost.
	LeadLost()
}

// Run leads the webhooks of each namespace that has some, whenever no other process
// does, until stop ends. Then it makes no further requests, waits for those that are
// under way, at most until work ends, and returns.
func Run(stop, work context.Context, config Config) {
	s := &senders{Config: config, running: map[int64]context.CancelFunc{}}
	defer s.all.Wait()
	finding := worker.Trouble{Log: config.Log, Message: "cannot look for webhooks yet"}
	for {
		groups, err := pg.WebhookGroups(stop, config.Pool)
		switch {
		case stop.Err() != nil:
			return
		case err != nil:
			finding.Report(err)
		default:
			finding.Over()
			s.keep(stop, work, groups)
		}
		if !worker.Pause(stop, config.FindEvery) {
			return
		}
	}
}

// senders are the namespaces that this process sends for, or stands by for.
type senders struct {
	Config
	all sync.WaitGroup

	mu      sync.Mutex
	running map[int64]context.CancelFunc // by group
}

// keep begins to lead groups that are new, and ends leading those that are gone.
func (s *senders) keep(stop, work context.Context, groups []pg.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[int64]bool{}
	for _, g := range groups {
		found[g.ID] = true
		if s.running[g.ID] != nil {
			continue
		}
		going, end := context.WithCancel(stop)
		s.running[g.ID] = end
		s.all.Go(func() {
			defer end()
			s.lead(going, work, g)
			s.mu.Lock()
			delete(s.running, g.ID)
			s.mu.Unlock()
		})
	}
	for id, end := range s.running {
		if !found[id] {
			end()
		}
	}
}

// lead leads the webhooks of a namespace, or stands by.
func (s *senders) lead(stop, work context.Context, group pg.Group) {
	config := s.Config
	config.Log = config.Log.With("webhooks_of", group.Namespace)
	origin, err := pg.Origin(stop, config.Pool)
	if err == nil {
		lead := worker.Lead{
			Owner: config.Owner, LeaseFor: config.LeaseFor, AskEvery: config.IdlePoll, Log: config.Log, Lost: config.Observe.LeadLost,
			Acquire: func(ctx context.Context) (worker.Leadership, string, error) {
				lead, err := pg.LeadWebhooks(ctx, config.Pool, group, config.Owner, config.LeaseFor, 0)
				if err != nil || lead.Epoch == 0 {
					return nil, lead.Leader, err
				}
				return newLeadership(config, lead, origin), "", nil
			},
		}
		err = lead.Run(stop, work)
	}
	if err != nil && stop.Err() == nil {
		config.Log.Warn("webhooks are not sent for now", "error", fmt.Errorf("lead them: %w", err))
	}
}
