package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/seal"
)

// sealAndPublish publishes messages, and before that seals those for confidential
// streams. It holds no database connection while it seals, because sealing may need one.
func (s *Server) sealAndPublish(ctx context.Context, namespace string, all []posthorn.Message) (ids []int64, replayed bool, err error) {
	sealed, err := s.seal(ctx, namespace, all)
	if err != nil {
		return nil, false, err
	}
	ids, replayed, err = s.publishOrReplay(ctx, namespace, sealed)
	if !s.box.Stale(namespace, payloadsOf(all), err) {
		return ids, replayed, err
	}
	if sealed, err = s.seal(ctx, namespace, all); err != nil {
		return nil, false, err
	}
	return s.publishOrReplay(ctx, namespace, sealed)
}

func (s *Server) seal(ctx context.Context, namespace string, all []posthorn.Message) ([]posthorn.Message, error) {
	payloads, err := s.box.Seal(ctx, namespace, payloadsOf(all))
	switch {
	case err != nil && (errors.Is(err, posthorn.ErrNotFound) || errors.Is(err, posthorn.ErrRefused) || isUnavailable(err)):
		return nil, err
	case err != nil:
		s.log.Error("events cannot be sealed", "namespace", namespace, "error", err)
		return nil, unavailable("the events are for a confidential stream and cannot be sealed now", "The server's log has the cause.").withCause(err)
	}
	sealed := slices.Clone(all)
	for i := range sealed {
		if seal.IsSealed(payloads[i].Payload) { // by the box, or by the client
			sealed[i].Payload = payloads[i].Payload
		}
	}
	return sealed, nil
}

// payloadsOf returns the parts of messages that sealing needs.
func payloadsOf(all []posthorn.Message) []pg.Message {
	messages := make([]pg.Message, len(all))
	for i := range all {
		payload, _ := all[i].Payload.(json.RawMessage) // the decoders of bodies return no other type
		messages[i] = pg.Message{Stream: all[i].Stream, Payload: payload}
	}
	return messages
}

// opener opens the payloads of events and dead letters for an Admin, and logs payloads
// that cannot be opened yet.
type opener struct{ box *sealing.Box }

func (o opener) OpenPayload(ctx context.Context, namespace, stream string, metadata, payload []byte) (plain []byte, opened bool, err error) {
	plain, opened, err = o.box.OpenPayload(ctx, namespace, stream, metadata, payload)
	if err != nil && !sealing.IsFinal(err) {
		o.box.LogUnopened(namespace, stream, err)
	}
	return plain, opened, err
}

// openLease opens the events of a lease. If a payload cannot be opened yet, it releases
// the lease, because the client would otherwise settle an event without having seen it.
func (s *Server) openLease(ctx context.Context, c caller, lease pg.Lease) ([]eventView, error) {
	views := make([]eventView, len(lease.Events))
	for i, e := range lease.Events {
		err := s.box.Open(ctx, c.namespace, &e)
		if err != nil && !sealing.IsFinal(err) {
			s.box.LogUnopened(c.namespace, e.Stream, err)
			releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.Timeout)
			defer cancel()
			if err := pg.Release(releasing, s.client.Pool(), lease); err != nil {
				return nil, err
			}
			return nil, newProblem(http.StatusServiceUnavailable, "the lease has events of a confidential stream, which cannot be opened now",
				"The server's log has the cause; the server needs the keeper of the stream.").withCause(err)
		}
		views[i] = viewOfRead(e, err != nil)
	}
	return views, nil
}

// open opens an event for a reader over HTTP. An error ends the answer, so that the reader
// comes back to this event. On a server without the keeper that would never end, so
// there the event stays sealed.
func (st *eventStream) open(ctx context.Context, e pg.Event) (eventView, error) {
	err := st.server.box.Open(ctx, st.caller.namespace, &e)
	if err != nil && !sealing.IsFinal(err) && !errors.Is(err, seal.ErrNoKeeper) {
		return eventView{}, err
	}
	return viewOfRead(e, err != nil), nil
}
