package redis

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

//go:embed trim.lua
var trimScript string

var trimming = redis.NewScript(trimScript)

const (
	// headBytes is about how much one call of the script reads from the head of a
	// stream. It is limited, since the server executes no other command during a script.
	headBytes   = 1 << 20
	headFirst   = 100 // entries of the first call
	headEntries = 5000
)

// Trim removes the oldest entries of a stream that neither Keep nor KeepFor protects;
// see [posthorn.Trimmer]. A consumer group of the key, also one of another program,
// protects the entries that were not delivered to it or that it has not acknowledged.
// The last entry is never removed, since sinks compare their events with it.
func (s *Sink) Trim(ctx context.Context, namespace, stream string, needed func(ctx context.Context, ids []int64) ([]int64, error)) error {
	t := s.link.target
	if t.keep <= 0 && t.keepFor <= 0 {
		return nil
	}
	err := s.link.open(ctx)
	for count := headFirst; err == nil; {
		var h head
		if h, err = s.readHead(ctx, namespace, stream, count); err != nil {
			break
		}
		var upto string
		if upto, err = h.removable(ctx, t, needed); err != nil || upto == "" {
			break
		}
		var removed int64
		removed, err = trimming.Run(ctx, s.link.client, []string{t.prefix + stream}, "trim", upto).Int64()
		if err == nil && removed < int64(len(h.entries)) {
			return nil // the next entry must stay
		}
		count = min(max(headBytes*len(h.entries)/(h.size+1), 10), headEntries)
	}
	if err = s.link.check(ctx, err); err != nil {
		return fmt.Errorf("trim stream %q: %w", stream, err)
	}
	return nil
}

// head is the oldest entries of a stream.
type head struct {
	now     int64  // time of the server, in ms
	length  int64  // of the whole stream
	bound   string // id of the first entry that a consumer group needs; "" without groups
	size    int    // of the entries, in bytes
	entries []headEntry
}

type headEntry struct {
	id    string
	event int64 // 0 for an entry of another program
}

func (s *Sink) readHead(ctx context.Context, namespace, stream string, count int) (head, error) {
	answer, err := trimming.Run(ctx, s.link.client, []string{s.link.prefix + stream}, "head", count, namespace).Slice()
	if err != nil || len(answer) < 4 {
		return head{}, err
	}
	h := head{now: answer[0].(int64), length: answer[1].(int64), bound: answer[2].(string), size: int(answer[3].(int64))}
	for i := 4; i+1 < len(answer); i += 2 {
		event, _ := strconv.ParseInt(answer[i+1].(string), 10, 64)
		h.entries = append(h.entries, headEntry{id: answer[i].(string), event: event})
	}
	return h, nil
}

// removable returns the id before which all entries can be removed, or "" if none can.
func (h head) removable(ctx context.Context, t target, needed func(ctx context.Context, ids []int64) ([]int64, error)) (string, error) {
	n := int(min(h.length-int64(max(t.keep, 1)), int64(len(h.entries))))
	old := ""
	if t.keepFor > 0 {
		old = fmt.Sprintf("%d-0", max(h.now-t.keepFor.Milliseconds(), 0))
	}
	var ids []int64
	for i := range max(n, 0) {
		e := h.entries[i]
		if h.bound != "" && !less(e.id, h.bound) || old != "" && !less(e.id, old) {
			n = i
			break
		}
		if e.event > 0 {
			ids = append(ids, e.event)
		}
	}
	if n <= 0 {
		return "", nil
	}
	if len(ids) > 0 {
		wanted, err := needed(ctx, ids)
		if err != nil {
			return "", err
		}
		isNeeded := map[int64]bool{}
		for _, id := range wanted {
			isNeeded[id] = true
		}
		if i := slices.IndexFunc(h.entries[:n], func(e headEntry) bool { return isNeeded[e.event] }); i >= 0 {
			n = i
		}
	}
	switch {
	case n == 0:
		return "", nil
	case n < len(h.entries):
		return h.entries[n].id, nil
	}
	return after(h.entries[n-1].id), nil
}

// less reports whether the entry id a is before b.
func less(a, b string) bool {
	aMS, aSeq, _ := split(a)
	bMS, bSeq, _ := split(b)
	return aMS < bMS || aMS == bMS && aSeq < bSeq
}

// after returns the smallest possible id after an id.
func after(id string) string {
	ms, seq, _ := split(id)
	if seq++; seq == 0 {
		ms++
	}
	return fmt.Sprintf("%d-%d", ms, seq)
}
