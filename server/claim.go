package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

type claimInput struct {
	in.Namespace
	Name   string `path:"name" doc:"The name of the group"`
	Accept string `header:"Accept" hidden:"true"`
	Body   *struct {
		MaxEvents    int     `json:"max_events,omitempty" minimum:"1" maximum:"1000" default:"10" doc:"How many events at most"`
		LeaseSeconds float64 `json:"lease_seconds,omitempty" minimum:"0.1" maximum:"86400" default:"30" doc:"How long you have before others get them. Extend it while you work"`
		Node         string  `json:"node,omitempty" doc:"Who you are, for people who look. Default: http"`
		Wait         float64 `json:"wait,omitempty" minimum:"0" maximum:"60" doc:"Seconds to wait while there is nothing"`
	}
}

// claimed is a lease, or none.
type claimed struct {
	Lease   int64       `json:"lease,omitempty" doc:"Settle it when the events are done; absent when there are none"`
	Attempt int         `json:"attempt,omitempty" doc:"Say it whenever you name the lease"`
	Events  []eventView `json:"events"`
}

type claimOutput struct {
	ContentType string `header:"Content-Type"`
	Lease       int64  `header:"Posthorn-Lease"`
	Attempt     int    `header:"Posthorn-Attempt"`
	Body        any
}

func (s *Server) claiming() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/groups/{name}/claim", id: "claim-events", tag: "groups",
		summary: "Take events of a group",
		description: "The events are yours until the lease expires: settle it before. With wait, the answer comes as soon as there are events. " +
			"Accept: application/cloudevents-batch+json returns CloudEvents, and the lease in the headers Posthorn-Lease and Posthorn-Attempt.",
		scope: scopeConsume, waits: true,
		response: map[string]*huma.MediaType{
			"application/json": {Schema: schemaOf[claimed](s)},
			cloudEventsBatch:   {Schema: &huma.Schema{Type: huma.TypeArray, Items: schemaOf[cloudEvent](s)}},
		},
	}, s.claimEvents)
}

func (s *Server) claimEvents(ctx context.Context, c caller, input *claimInput) (*claimOutput, error) {
	want := claim{
		group: groupName{c.namespace, input.Name}, node: "http", maxEvents: 10, leaseFor: 30 * time.Second, caller: c,
	}
	var wait time.Duration
	if b := input.Body; b != nil {
		want.node = cmp.Or(b.Node, want.node)
		want.maxEvents = cmp.Or(b.MaxEvents, want.maxEvents)
		want.leaseFor = cmp.Or(seconds(b.LeaseSeconds), want.leaseFor)
		wait = seconds(b.Wait)
	}
	if err := s.checkClaim(ctx, c, input.Name); err != nil {
		return nil, err
	}
	lease, err := s.claim(ctx, want)
	if err == nil && wait > 0 && len(lease.Events) == 0 {
		lease, err = s.awaitClaim(ctx, want, wait)
	}
	if err != nil {
		return nil, err
	}
	views, err := s.openLease(ctx, c, lease)
	if err != nil {
		return nil, err
	}
	output := &claimOutput{Lease: lease.ID, Attempt: lease.Attempt}
	if wantsCloudEvents(input.Accept) {
		output.ContentType = cloudEventsBatch
		output.Body, err = batchOf(c.namespace, views)
		return output, err
	}
	output.ContentType = "application/json"
	output.Body = claimed{lease.ID, lease.Attempt, views}
	return output, nil
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// claim is what somebody wants to take.
type claim struct {
	group     groupName
	node      string
	maxEvents int
	leaseFor  time.Duration
	caller    caller
}

// claim takes events, if there are any. A statement that is under way when the
// client goes is not broken off, which would leave open whether it took a lease:
// what it took goes back.
func (s *Server) claim(ctx context.Context, want claim) (pg.Lease, error) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Timeout)
	defer cancel()
	lease, err := pg.ClaimInTime(asking, s.client.Pool(), want.group.namespace, want.group.group, want.node, want.maxEvents, want.leaseFor)
	if err == nil && lease.Held() && ctx.Err() != nil {
		_ = pg.Release(asking, s.client.Pool(), lease) // or it expires
		s.waits.news(want.group)
		return pg.Lease{}, ctx.Err()
	}
	if err == nil && slices.ContainsFunc(lease.Events, func(e pg.Event) bool { return !want.caller.mayRead(e.Stream) }) {
		// The group was looked at before; but an event may also go to one of its
		// subscriptions whatever that asks for, and a policy may be new.
		err = cmp.Or(pg.Release(asking, s.client.Pool(), lease), errHiddenClaim())
		s.waits.news(want.group)
		return pg.Lease{}, err
	}
	return lease, err
}

// awaitClaim takes events as soon as there are any. It ends without when the
// time is over, or the server stops.
func (s *Server) awaitClaim(ctx context.Context, want claim, wait time.Duration) (pg.Lease, error) {
	if s.isDraining() {
		return pg.Lease{}, errDraining()
	}
	waiting, cancel := s.untilDrain(ctx)
	defer cancel()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	me, err := s.waits.join(want.group)
	if err != nil {
		return pg.Lease{}, err
	}
	defer s.waits.leave(me)
	for {
		select {
		case <-me.turn:
		case <-timer.C:
			return pg.Lease{}, nil
		case <-waiting.Done():
			return pg.Lease{}, ctx.Err() // nil if the server stops
		}
		if want.caller, err = s.again(ctx, want.caller); err != nil {
			return pg.Lease{}, err
		}
		lease, err := s.claim(ctx, want)
		if err != nil || len(lease.Events) > 0 {
			return lease, err
		}
		s.waits.looked(me)
	}
}
