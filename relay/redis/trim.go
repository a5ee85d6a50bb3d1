package redis

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

//go:embed trim.lua
var trimScript string

var trimming = redis.NewScript(trimScript)

const (
	// lookBytes is about how much a look at the head of a stream reads: the server
	// does nothing else meanwhile.
	lookBytes   = 1 << 20
	lookFirst   = 100
	lookEntries = 5000
)

// Trim removes the oldest entries of a stream, see [posthorn.Trimmer], as far as
// Keep and KeepFor allow: those that neither wants to stay. A consumer group of the
// key, of whatever program, holds what it has not been handed, and what it has not
// acknowledged. The last entry stays, as the place where the next comes.
func (s *Sink) Trim(ctx context.Context, namespace, stream string, needed func(ctx context.Context, ids []int64) ([]int64, error)) error {
	t := s.link.target
	if t.keep <= 0 && t.keepFor <= 0 {
		return nil
	}
	err := s.link.open(ctx)
	for count := lookFirst; err == nil; {
		var h head
		if h, err = s.look(ctx, namespace, stream, count); err != nil {
			break
		}
		var upto string
		if upto, err = h.upto(ctx, t, needed); err != nil || upto == "" {
			break
		}
		var removed int64
		removed, err = trimming.Run(ctx, s.link.client, []string{t.prefix + stream}, "trim", upto).Int64()
		if err == nil && removed < int64(len(h.entries)) {
			return nil // the next one stays
		}
		count = min(max(lookBytes*len(h.entries)/(h.size+1), 10), lookEntries)
	}
	if err = s.link.check(ctx, err); err != nil {
		return fmt.Errorf("trim stream %q: %w", stream, err)
	}
	return nil
}

// head is the head of a stream.
type head struct {
	now     int64 // ms
	length  int64
	bound   string // what groups need begins here; "" without groups
	size    int
	entries []headEntry
}

type headEntry struct {
	id    string
	event int64 // 0 for one of others
}

func (s *Sink) look(ctx context.Context, namespace, stream string, count int) (head, error) {
	answer, err := trimming.Run(ctx, s.link.client, []string{s.link.prefix + stream}, "look", count, namespace).Slice()
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

// upto is the id before which all of the head may go, or "" if nothing may.
func (h head) upto(ctx context.Context, t target, needed func(ctx context.Context, ids []int64) ([]int64, error)) (string, error) {
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
		is := map[int64]bool{}
		for _, id := range wanted {
			is[id] = true
		}
		for i := range n {
			if is[h.entries[i].event] {
				n = i
				break
			}
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

// less compares ids of entries.
func less(a, b string) bool {
	aMS, aSeq, _ := split(a)
	bMS, bSeq, _ := split(b)
	return aMS < bMS || aMS == bMS && aSeq < bSeq
}

// after is the id right behind another.
func after(id string) string {
	ms, seq, _ := split(id)
	if seq++; seq == 0 {
		ms++
	}
	return fmt.Sprintf("%d-%d", ms, seq)
}
