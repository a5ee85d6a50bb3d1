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
	read          func(context.Context) ([]handed, error) // those of a stream are in the order of the place

	entries  []handed // result of the last read; uid is 0 in places that keep ids alone
	ids      []int64  // of the entries
	distinct int      // number of distinct ids
}

func (p *place) String() string { return p.name }

// look reads the place.
func (p *place) look(ctx context.Context) (err error) {
	p.entries, err = p.read(ctx)
	p.ids = nil
	for _, e := range p.entries {
		p.ids = append(p.ids, e.id)
	}
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

func (p *pipelinePart) readRedis(ctx context.Context) ([]handed, error) {
	return readRedis(ctx, p.redis.Current().Client, p.streams)
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

func ofRedis(entry goredis.XMessage) (handed, error) {
	id, _ := entry.Values["id"].(string)
	payload, _ := entry.Values["data"].(string)
	return ofEntry(id, []byte(payload))
}

// ofEntry reads the id of an event, and the message in its payload.
func ofEntry(id string, payload []byte) (e handed, err error) {
	if e.id, err = strconv.ParseInt(id, 10, 64); err == nil {
		e.uid, err = uidIn(payload)
	}
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

func (p *pipelinePart) readNATS(ctx context.Context) (entries []handed, err error) {
	entries, p.stored, err = readNATS(ctx, p.nats.URL)
	return entries, err
}

// readNATS reads the messages of all streams of JetStream, and describes each one.
func readNATS(ctx context.Context, url string) (entries []handed, stored []string, err error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, nil, err
	}
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if strings.HasPrefix(name, "KV_") { // positions of groups
			continue
		}
		err := readJetStream(ctx, js, name, func(e handed, description string) {
			entries, stored = append(entries, e), append(stored, description)
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return entries, stored, names.Err()
}

func readJetStream(ctx context.Context, js jetstream.JetStream, name string, add func(e handed, description string)) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	left := stream.CachedInfo().State.Msgs
	if left == 0 {
		return nil
	}
	consumer, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for ; left > 0; left-- {
		message, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		e, err := ofEntry(message.Headers().Get("Nats-Msg-Id"), message.Data())
		if err != nil {
			return err
		}
		meta, err := message.Metadata()
		if err != nil {
			return err
		}
		add(e, fmt.Sprintf("%s %d: event %d %s, stored at %s", name, meta.Sequence.Stream, e.id, message.Data(), meta.Timestamp.UTC()))
	}
	return nil
}

func (p *pipelinePart) readEffects(reader string) func(context.Context) ([]handed, error) {
	return func(ctx context.Context) ([]handed, error) { return readEffects(ctx, p.consumers, reader) }
}

func readEffects(ctx context.Context, database, reader string) ([]handed, error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, "select event from effects where reader = $1", reader)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e handed, err error) { return e, row.Scan(&e.id) })
}

// readArchive reads the objects, which the S3 server stores as files.
func (p *pipelinePart) readArchive(context.Context) ([]handed, error) {
	return readArchive(p.store.Dir())
}

// readArchive reads the segments of an archive in a directory.
func readArchive(dir string) (entries []handed, err error) {
	var segments []string
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
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
		entries = append(entries, found...)
	}
	return entries, nil
}

func readSegment(path string) (entries []handed, err error) {
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
			ID      int64 `json:"id"`
			Payload struct {
				UID int64 `json:"uid"`
			} `json:"payload"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, err
		}
		entries = append(entries, handed{id: line.ID, uid: line.Payload.UID})
	}
	return entries, lines.Err()
}
