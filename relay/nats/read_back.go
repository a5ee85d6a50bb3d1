package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
)

// Written lists the streams of a namespace; see [posthorn.SinkReader]. It fails while a stream
// has no leader.
func (s *Sink) Written(ctx context.Context, _, namespace string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	var streams []string
	n := names{s.config.Prefix, namespace}
	for listed, total := 0, 1; listed < total; {
		page, err := s.listStreams(ctx, n.all()+">", listed)
		if err != nil {
			return nil, fmt.Errorf("list streams of nats: %w", err)
		}
		for _, found := range page.Streams {
			if stream, ours := n.streamOf(found.Config.Subjects); ours {
				streams = append(streams, stream)
			}
		}
		if len(page.Streams) == 0 {
			break
		}
		listed, total = listed+len(page.Streams), page.Total
	}
	slices.Sort(streams)
	return streams, nil
}

// streamList is a page of the list of streams.
type streamList struct {
	Error   *jetstream.APIError `json:"error"`
	Total   int                 `json:"total"`
	Streams []struct {
		Config struct {
			Subjects []string `json:"subjects"`
		} `json:"config"`
	} `json:"streams"`
	Missing []string `json:"missing"` // that match, and whose servers do not answer
}

// listStreams lists the streams with some subjects, without the first ones. The client of
// NATS leaves out streams that are missing, and does not tell.
func (s *Sink) listStreams(ctx context.Context, subjects string, skip int) (page streamList, err error) {
	request, err := json.Marshal(map[string]any{"subject": subjects, "offset": skip})
	if err != nil {
		return page, err
	}
	answer, err := s.conn.RequestWithContext(ctx, "$JS.API.STREAM.LIST", request)
	if err == nil {
		err = json.Unmarshal(answer.Data, &page)
	}
	switch {
	case err != nil:
		return page, err
	case page.Error != nil:
		return page, page.Error
	case len(page.Missing) > 0:
		return page, fmt.Errorf("no server answers for stream %s", strings.Join(page.Missing, ", "))
	}
	return page, nil
}

// ReadBack reads messages of a stream, the last one first; see [posthorn.SinkReader].
func (s *Sink) ReadBack(ctx context.Context, _, namespace, stream, before string, limit int) ([]posthorn.SourceEntry, error) {
	name := names{s.config.Prefix, namespace}.stream(stream)
	found, err := s.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read stream %q of nats: %w", stream, err)
	}
	state := found.CachedInfo().State
	at := state.LastSeq
	if before != "" {
		passed, err := parsePosition(before)
		if err != nil {
			return nil, err
		}
		at = passed - 1
	}
	var entries []posthorn.SourceEntry
	for at >= state.FirstSeq && at > 0 && len(entries) < limit {
		n := min(maxRequests, limit-len(entries), int(min(at-state.FirstSeq+1, maxRequests)))
		messages, err := s.getMessages(ctx, name, at, n)
		if err != nil {
			return nil, fmt.Errorf("read stream %q of nats: %w", stream, err)
		}
		for _, m := range messages {
			entries = append(entries, decode(stream, strconv.FormatUint(m.Sequence, 10), m.Header, m.Data))
		}
		at -= uint64(n)
	}
	return entries, nil
}
