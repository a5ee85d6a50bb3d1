package server

import (
	"context"
	"net/http"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

type failureInput struct {
	Event        int64    `json:"event" minimum:"1" doc:"The id of the event that failed"`
	Subscription string   `json:"subscription,omitempty" doc:"For which of the group's subscriptions. Default: all it was handed out for"`
	Error        string   `json:"error,omitempty" doc:"What went wrong"`
	Stack        string   `json:"stack,omitempty"`
	Reason       string   `json:"reason,omitempty" doc:"In a few words, for the dead letter"`
	Permanent    bool     `json:"permanent,omitempty" doc:"No further attempt makes sense: it becomes a dead letter at once"`
	RetryIn      *float64 `json:"retry_in_seconds,omitempty" minimum:"0" maximum:"31536000" doc:"When to try again. Default: as the group says"`
}

func (f failureInput) failure() pg.Failure {
	failure := pg.Failure{
		Event: f.Event, Subscription: f.Subscription, Error: f.Error, Stack: f.Stack, Reason: f.Reason, Permanent: f.Permanent,
	}
	if f.RetryIn != nil {
		after := seconds(*f.RetryIn)
		failure.RetryIn = &after
	}
	return failure
}

type settleInput struct {
	in.Namespace
	Lease int64 `path:"lease" minimum:"1" doc:"The number of the lease, from the claim"`
	Body  struct {
		Attempt  int            `json:"attempt" minimum:"1" maximum:"2147483647" doc:"That of the claim"`
		Failures []failureInput `json:"failures,omitempty" doc:"The events that failed; all others are done"`
		Released []int64        `json:"released,omitempty" doc:"The events that were not tried: they come back at once, and it does not count"`
	}
}

type extendInput struct {
	in.Namespace
	Lease int64 `path:"lease" minimum:"1" doc:"The number of the lease, from the claim"`
	Body  struct {
		Attempt      int     `json:"attempt" minimum:"1" maximum:"2147483647" doc:"That of the claim"`
		LeaseSeconds float64 `json:"lease_seconds,omitempty" minimum:"0.1" maximum:"86400" doc:"How long you have from now on. Default: as long as the events were claimed for"`
	}
}

type extendOutput struct {
	Body struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
}

type releaseInput struct {
	in.Namespace
	Lease int64 `path:"lease" minimum:"1" doc:"The number of the lease, from the claim"`
	Body  struct {
		Attempt int `json:"attempt" minimum:"1" maximum:"2147483647" doc:"That of the claim"`
	}
}

func (s *Server) leases() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/leases/{lease}/settle", id: "settle-lease", tag: "groups",
		summary:     "Say what has become of claimed events",
		description: "Those that are not named are done. 409 with the type /problems/lease-lost: it is too late, others have them. Drop what you did.",
		scope:       scopeConsume, status: http.StatusNoContent,
	}, s.settleLease)

	register(s, operation{
		method: http.MethodPost, path: "/v1/leases/{lease}/extend", id: "extend-lease", tag: "groups",
		summary:     "Keep claimed events for longer",
		description: "The lease lasts from now as long as the events were claimed for, or lease_seconds. 409: others have the events.",
		scope:       scopeConsume,
	}, func(ctx context.Context, c caller, input *extendInput) (*extendOutput, error) {
		var output extendOutput
		if err := s.checkLease(ctx, c, input.Lease); err != nil {
			return nil, err
		}
		until, err := pg.ExtendIn(ctx, s.client.Pool(), c.namespace, pg.Lease{ID: input.Lease, Attempt: input.Body.Attempt}, seconds(input.Body.LeaseSeconds))
		output.Body.ExpiresAt = until.UTC()
		return &output, err
	})

	register(s, operation{
		method: http.MethodPost, path: "/v1/leases/{lease}/release", id: "release-lease", tag: "groups",
		summary:     "Give all claimed events back untouched",
		description: "Others may take the events at once, and it does not count as a delivery.",
		scope:       scopeConsume, status: http.StatusNoContent,
	}, func(ctx context.Context, c caller, input *releaseInput) (*struct{}, error) {
		if err := s.checkLease(ctx, c, input.Lease); err != nil {
			return nil, err
		}
		group, err := pg.ReleaseIn(ctx, s.client.Pool(), c.namespace, pg.Lease{ID: input.Lease, Attempt: input.Body.Attempt})
		s.waits.news(groupName{c.namespace, group})
		return nil, err
	})
}

func (s *Server) settleLease(ctx context.Context, c caller, input *settleInput) (*struct{}, error) {
	failures := make([]pg.Failure, 0, len(input.Body.Failures)+len(input.Body.Released))
	for _, f := range input.Body.Failures {
		failures = append(failures, f.failure())
	}
	for _, id := range input.Body.Released {
		failures = append(failures, pg.Failure{Event: id, Released: true})
	}
	if err := s.checkLease(ctx, c, input.Lease); err != nil {
		return nil, err
	}
	group, err := pg.SettleIn(ctx, s.client.Pool(), c.namespace, pg.Lease{ID: input.Lease, Attempt: input.Body.Attempt}, failures...)
	s.waits.news(groupName{c.namespace, group}) // what it blocked, or gave back
	return nil, err
}
