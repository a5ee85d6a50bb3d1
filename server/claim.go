package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

type claimInput struct {
	in.ByName
	Accept string `header:"Accept" hidden:"true"`
	Body   *struct {
		MaxEvents    int     `json:"max_events,omitempty" minimum:"1" maximum:"1000" default:"10" doc:"The largest number of events"`
		LeaseSeconds float64 `json:"lease_seconds,omitempty" minimum:"0.1" maximum:"86400" default:"30" doc:"How long the lease lasts, unless it is extended. Then others can claim the events"`
		Node         string  `json:"node,omitempty" doc:"A name for the worker, shown to operators. Default: http"`
		Wait         float64 `json:"wait,omitempty" minimum:"0" maximum:"60" doc:"How many seconds to wait for events if there are none"`
	}
}

// claimed is the JSON of a lease with its events. Without events there is no lease.
type claimed struct {
	Lease   int64       `json:"lease,omitempty" doc:"The number of the lease; absent if there are no events. Settle it when they are handled"`
	Attempt int         `json:"attempt,omitempty" doc:"Send it with every request about the lease"`
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
		summary: "Claim events of a group",
		description: "The lease on the events lasts until it expires: settle it before. With wait, the response comes as soon as there are events. " +
			"Accept: application/cloudevents-batch+json returns CloudEvents, and the lease in the headers Posthorn-Lease and Posthorn-Attempt.",
		scope: scopeConsume, waits: true,
		response: eventContent[claimed](s, cloudEventsBatch),
	}, s.claimEvents)
}

func (s *Server) claimEvents(ctx context.Context, c caller, input *claimInput) (*claimOutput, error) {
	request := claimRequest{
		group: groupName{c.namespace, input.Name}, node: "http", maxEvents: 10, leaseFor: 30 * time.Second, caller: c,
	}
	var wait time.Duration
	if b := input.Body; b != nil {
		request.node = cmp.Or(b.Node, request.node)
		request.maxEvents = cmp.Or(b.MaxEvents, request.maxEvents)
		request.leaseFor = cmp.Or(seconds(b.LeaseSeconds), request.leaseFor)
		wait = seconds(b.Wait)
	}
	if err := s.admin(c).CheckClaim(ctx, input.Name); err != nil {
		return nil, err
	}
	lease, err := s.claim(ctx, request)
	if err == nil && wait > 0 && len(lease.Events) == 0 {
		lease, err = s.awaitClaim(ctx, request, wait)
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

// claimRequest is a claim of a caller.
type claimRequest struct {
	group     groupName
	node      string
	maxEvents int
	leaseFor  time.Duration
	caller    caller
}

// claim returns a lease, which is empty if there are no events. When the client
// disconnects, the statement is not cancelled, because it would then be unknown whether
// it has made a lease: a lease that nobody can receive any more is released.
func (s *Server) claim(ctx context.Context, request claimRequest) (pg.Lease, error) {
	claiming, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Timeout)
	defer cancel()
	lease, err := pg.ClaimInTime(claiming, s.client.Pool(), request.group.namespace, request.group.group, request.node, request.maxEvents, request.leaseFor)
	if err == nil && lease.Held() && ctx.Err() != nil {
		_ = pg.Release(claiming, s.client.Pool(), lease) // after an error the lease expires
		s.groupQueues.Wake(request.group)
		return pg.Lease{}, ctx.Err()
	}
	a := s.admin(request.caller)
	if err == nil && slices.ContainsFunc(lease.Events, func(e pg.Event) bool { return !a.Reads(e.Stream) }) {
		// CheckClaim has passed, but a message for one subscription alone need not match
		// its filter, and the stream may have been restricted since.
		err = cmp.Or(pg.Release(claiming, s.client.Pool(), lease), admin.ErrHiddenClaim())
		s.groupQueues.Wake(request.group)
		return pg.Lease{}, err
	}
	return lease, err
}

// awaitClaim claims events as soon as there are any. It returns an empty lease when the
// time is over or the server stops.
func (s *Server) awaitClaim(ctx context.Context, request claimRequest, wait time.Duration) (pg.Lease, error) {
	if err := s.beginWait(&s.groupWaits, s.jobWaits.Load()); err != nil {
		return pg.Lease{}, err
	}
	defer s.groupWaits.Add(-1)
	waiting, cancel := s.untilDrain(ctx)
	defer cancel()
	waiting, cancel = context.WithTimeout(waiting, wait)
	defer cancel()
	waiter := s.groupQueues.Join(request.group)
	defer waiter.Leave()
	for waiter.Wait(waiting) {
		var err error
		if request.caller, err = s.reauthorize(ctx, request.caller); err != nil {
			return pg.Lease{}, err
		}
		lease, err := s.claim(ctx, request)
		if err != nil || len(lease.Events) > 0 {
			return lease, err
		}
	}
	return pg.Lease{}, ctx.Err() // nil if the time is over or the server stops
}
