package server

import (
	"context"
	"net/http"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

type settleInput struct {
	in.ByLease
	Body struct {
		Attempt  int            `json:"attempt" minimum:"1" maximum:"2147483647" doc:"The attempt of the claim"`
		Failures []failureInput `json:"failures,omitempty" doc:"The events that failed; all others are done"`
		Released []int64        `json:"released,omitempty" doc:"The ids of events that were not handled: they are handed out again at once, without counting an attempt"`
	}
}

type failureInput struct {
	Event        int64    `json:"event" minimum:"1" doc:"The id of the event"`
	Subscription string   `json:"subscription,omitempty" doc:"The subscription for which it failed. Default: all for which it was handed out"`
	Error        string   `json:"error,omitempty" doc:"The error message"`
	Stack        string   `json:"stack,omitempty"`
	Reason       string   `json:"reason,omitempty" doc:"A short reason, by which dead letters can be found"`
	Permanent    bool     `json:"permanent,omitempty" doc:"The event becomes a dead letter at once, without further attempts"`
	RetryIn      *float64 `json:"retry_in_seconds,omitempty" minimum:"0" maximum:"31536000" doc:"The time until the next attempt. Default: the policy of the group"`
}

type extendInput struct {
	in.ByLease
	Body struct {
		Attempt      int     `json:"attempt" minimum:"1" maximum:"2147483647" doc:"The attempt of the claim"`
		LeaseSeconds float64 `json:"lease_seconds,omitempty" minimum:"0.1" maximum:"86400" doc:"How long the lease lasts from now on. Default: the length of the claim"`
	}
}

type extendOutput struct {
	Body struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
}

type releaseInput struct {
	in.ByLease
	Body struct {
		Attempt int `json:"attempt" minimum:"1" maximum:"2147483647" doc:"The attempt of the claim"`
	}
}

func (s *Server) leases() {
	register(s, operation{
		method: http.MethodPost, path: "/v1/leases/{lease}/settle", id: "settle-lease", tag: "groups",
		summary: "Settle a lease: report which events are done and which failed",
		description: "All events that the body does not name are done. 409 with the type /problems/lease-lost: " +
			"the lease has ended, and other workers may have the events. Discard the results.",
		scope: scopeConsume, status: http.StatusNoContent,
	}, s.settleLease)

	register(s, operation{
		method: http.MethodPost, path: "/v1/leases/{lease}/extend", id: "extend-lease", tag: "groups",
		summary:     "Extend a lease",
		description: "The lease lasts from now as long as the claim asked for, or lease_seconds. 409: the lease has ended.",
		scope:       scopeConsume,
	}, func(ctx context.Context, c caller, input *extendInput) (*extendOutput, error) {
		var output extendOutput
		if err := s.admin(c).CheckLease(ctx, input.LeaseID); err != nil {
			return nil, err
		}
		lease := pg.Lease{ID: input.LeaseID, Attempt: input.Body.Attempt}
		until, err := pg.ExtendIn(ctx, s.client.Pool(), c.namespace, lease, seconds(input.Body.LeaseSeconds))
		output.Body.ExpiresAt = until.UTC()
		return &output, err
	})

	register(s, operation{
		method: http.MethodPost, path: "/v1/leases/{lease}/release", id: "release-lease", tag: "groups",
		summary:     "Release a lease without handling its events",
		description: "Other workers can claim the events at once. The attempt is not counted.",
		scope:       scopeConsume, status: http.StatusNoContent,
	}, func(ctx context.Context, c caller, input *releaseInput) (*struct{}, error) {
		if err := s.admin(c).CheckLease(ctx, input.LeaseID); err != nil {
			return nil, err
		}
		lease := pg.Lease{ID: input.LeaseID, Attempt: input.Body.Attempt}
		group, err := pg.ReleaseIn(ctx, s.client.Pool(), c.namespace, lease)
		s.groupQueues.Wake(groupName{c.namespace, group})
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
	if err := s.admin(c).CheckLease(ctx, input.LeaseID); err != nil {
		return nil, err
	}
	lease := pg.Lease{ID: input.LeaseID, Attempt: input.Body.Attempt}
	group, err := pg.SettleIn(ctx, s.client.Pool(), c.namespace, lease, failures...)
	s.groupQueues.Wake(groupName{c.namespace, group}) // for released events, and events that the lease has blocked
	return nil, err
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
