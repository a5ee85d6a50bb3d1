package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/seal"
)

// publishSealed publishes, and seals first what goes to confidential streams. No
// connection is held meanwhile: sealing may need one.
func (s *Server) publishSealed(ctx context.Context, namespace string, all []posthorn.Message) (ids []int64, replayed bool, err error) {
	sealed, err := s.seal(ctx, namespace, all)
	if err != nil {
		return nil, false, err
	}
	ids, replayed, err = s.publishOnce(ctx, namespace, sealed)
	if !s.box.Stale(namespace, payloadsOf(all), err) {
		return ids, replayed, err
	}
	if sealed, err = s.seal(ctx, namespace, all); err != nil {
		return nil, false, err
	}
	return s.publishOnce(ctx, namespace, sealed)
}

func (s *Server) seal(ctx context.Context, namespace string, all []posthorn.Message) ([]posthorn.Message, error) {
	given := payloadsOf(all)
	found, err := s.box.Seal(ctx, namespace, given)
	switch {
	case err != nil && (errors.Is(err, posthorn.ErrNotFound) || errors.Is(err, posthorn.ErrRefused) || isUnavailable(err)):
		return nil, err
	case err != nil:
		s.log.Error("events cannot be sealed", "namespace", namespace, "error", err)
		return nil, unavailable("the events are for a confidential stream and cannot be sealed now", "The server's log has more.").withCause(err)
	}
	sealed := make([]posthorn.Message, len(all))
	for i := range all {
		sealed[i] = all[i]
		if seal.IsSealed(found[i].Payload) { // now, or by whoever sent it
			sealed[i].Payload = found[i].Payload
		}
	}
	return sealed, nil
}

// payloadsOf is what sealing has to know of messages.
func payloadsOf(all []posthorn.Message) []pg.Message {
	messages := make([]pg.Message, len(all))
	for i := range all {
		payload, _ := all[i].Payload.(json.RawMessage) // decoders give nothing else
		messages[i] = pg.Message{Stream: all[i].Stream, Payload: payload}
	}
	return messages
}

// opener opens payloads for callers who read events, and logs why one does not open.
type opener struct{ box *sealing.Box }

func (o opener) OpenPayload(ctx context.Context, namespace, stream string, metadata, payload []byte) (plain []byte, opened bool, err error) {
	plain, opened, err = o.box.OpenPayload(ctx, namespace, stream, metadata, payload)
	if err != nil && !sealing.IsFinal(err) {
		o.box.LogUnopened(namespace, stream, err)
	}
	return plain, opened, err
}

// shown is an event after it was to be opened: without its payload, if it stayed
// sealed.
func shown(e pg.Event, err error) eventView {
	if err != nil {
		e.Payload = nil
	}
	view := viewOf(e)
	view.Sealed = err != nil
	return view
}

// openLease opens the events of a lease, for somebody who works on them. If one
// does not open yet, the lease goes back: its events are not to be taken for done.
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
			return nil, newProblem(http.StatusServiceUnavailable, "the group hands out events of a confidential stream, which cannot be opened now",
				"The server's log has more; it needs the keeper of the stream.").withCause(err)
		}
		views[i] = shown(e, err)
	}
	return views, nil
}

// open opens an event of a live stream. When it does not open yet the stream ends,
// and its reader comes back to this event; but not to a server that has no keeper.
func (st *eventStream) open(ctx context.Context, e pg.Event) (eventView, error) {
	err := st.box.Open(ctx, st.caller.namespace, &e)
	if err != nil && !sealing.IsFinal(err) && !errors.Is(err, seal.ErrNoKeeper) {
		return eventView{}, err
	}
	return shown(e, err), nil
}
