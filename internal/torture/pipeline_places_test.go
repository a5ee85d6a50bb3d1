package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	goredis "github.com/redis/go-redis/v9"
)

// place is a place that every event must reach. Its reader does not use Posthorn's
// readers, which could have the same fault.
type place struct {
	name          string
	once, ordered bool
	read          func(context.Context) ([]int64, error) // returns ids; those of a stream are in the order of the place

	ids      []int64 // result of the last read
	distinct int     // number of distinct ids
}

func (p *place) String() string { return p.name }

// look reads the place.
func (p *place) look(ctx context.Context) (err error) {
	p.ids, err = p.read(ctx)
	distinct := map[int64]bool{}
	for _, id := range p.ids {
		distinct[id] = true
	}
	p.distinct = len(distinct)
	return err
}

// checkPlace checks that every event of the log is in the place, in the order of its
// stream, and only once if repeats are not allowed.
func (c *checker) checkPlace(p *place) {
	times := map[int64]int{}
	for _, id := range p.ids {
		times[id]++
	}
	for id, n := range times {
		if _, ok := c.events[id]; !ok {
			c.report(invented, "%s has event %d, which is not in the log", p, id)
		}
		if p.once && n > 1 {
			c.report(doubled, "%s has event %d %d times", p, id, n)
		}
	}
	for id, e := range c.events {
		if times[id] == 0 {
			c.report(lost, "%s does not have event %d of %s", p, id, e.Stream)
		}
	}
	if !p.ordered {
		return
	}
	streams := sequences(func(add func(unit string, uid int64)) {
		for _, id := range p.ids {
			add(c.events[id].Stream, c.events[id].UID)
		}
	})
	for stream, uids := range streams {
		c.checkSequence(p, stream, "written", uids)
	}
}

func (p *pipelinePart) readRedis(ctx context.Context) ([]int64, error) {
	entries, err := readRedis(ctx, p.redis.Current().Client, p.streams)
	return idsOf(entries), err
}

func idsOf(entries []handed) (ids []int64) {
	for _, e := range entries {
		ids = append(ids, e.id)
	}
	return ids
}

// readRedis reads the entries of streams in Redis.
func readRedis(ctx context.Context, client *goredis.Client, streams map[string]bool) (read []handed, err error) {
	for stream := range streams {
		for from := "-"; ; {
			entries, err := client.XRangeN(ctx, stream, from, "+", 1000).Result()
			if err != nil {
				return nil, err
			}
			for _, entry := range entries {
				e, err := ofRedis(entry)
				if err != nil {
					return nil, err
				}
				read = append(read, e)
				from = "(" + entry.ID
			}
			if len(entries) < 1000 {
				break
			}
		}
	}
	return read, nil
}

func ofRedis(entry goredis.XMessage) (e handed, err error) {
	text, _ := entry.Values["id"].(string)
	if e.id, err = strconv.ParseInt(text, 10, 64); err != nil {
		return e, err
	}
	payload, _ := entry.Values["data"].(string)
	e.uid, err = uidIn([]byte(payload))
	return e, err
}

// uidIn returns the message that a payload names.
func uidIn(payload []byte) (int64, error) {
	var p struct {
		UID int64 `json:"uid"`
	}
	err := json.Unmarshal(payload, &p)
	return p.UID, err
}

func (p *pipelinePart) readNATS(ctx context.Context) (ids []int64, err error) {
	conn, err := nats.Connect(p.nats.URL)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	p.stored = nil
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if strings.HasPrefix(name, "KV_") { // positions of groups
			continue
		}
		found, err := p.readJetStream(ctx, js, name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, found...)
	}
	return ids, names.Err()
}

func (p *pipelinePart) readJetStream(ctx context.Context, js jetstream.JetStream, name string) (ids []int64, err error) {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	left := stream.CachedInfo().State.Msgs
	if left == 0 {
		return nil, nil
	}
	consumer, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	for ; left > 0; left-- {
		message, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, err
		}
		id, err := strconv.ParseInt(message.Headers().Get("Nats-Msg-Id"), 10, 64)
		if err != nil {
			return nil, err
		}
		meta, err := message.Metadata()
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
		p.stored = append(p.stored, fmt.Sprintf("%s %d: event %d %s, stored at %s", name, meta.Sequence.Stream, id, message.Data(), meta.Timestamp.UTC()))
	}
	return ids, nil
}

func (p *pipelinePart) readEffects(reader string) func(context.Context) ([]int64, error) {
	return func(ctx context.Context) ([]int64, error) { return readEffects(ctx, p.consumers, reader) }
}

func readEffects(ctx context.Context, database, reader string) ([]int64, error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, "select event from effects where reader = $1", reader)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// readArchive reads the objects, which the S3 server stores as files.
func (p *pipelinePart) readArchive(context.Context) (ids []int64, err error) {
	var segments []string
	err = filepath.WalkDir(p.store.Dir(), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".jsonl.zst") {
			segments = append(segments, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(segments)
	for _, path := range segments {
		found, err := readSegment(path)
		if err != nil {
			return nil, err
		}
		ids = append(ids, found...)
	}
	return ids, nil
}

func readSegment(path string) (ids []int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	plain, err := zstd.NewReader(file)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	lines := bufio.NewScanner(plain)
	for lines.Scan() {
		var line struct {
			ID int64 `json:"id"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, err
		}
		ids = append(ids, line.ID)
	}
	return ids, lines.Err()
}
