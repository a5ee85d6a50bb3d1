package torture

import (
	"bufio"
	"context"
	"encoding/json"
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
)

// Each place is read without our own readers, which could be wrong in the same way.

func (w *world) readRedis() (ids []int64, err error) {
	client := w.redis.Current().Client
	for _, stream := range streams {
		for from := "-"; ; {
			entries, err := client.XRangeN(w.t.Context(), stream, from, "+", 1000).Result()
			if err != nil {
				return nil, err
			}
			for _, entry := range entries {
				text, _ := entry.Values["id"].(string)
				id, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return nil, err
				}
				ids = append(ids, id)
				from = "(" + entry.ID
			}
			if len(entries) < 1000 {
				break
			}
		}
	}
	return ids, nil
}

func (w *world) readNATS() (ids []int64, err error) {
	conn, err := nats.Connect(w.nats.URL)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	names := js.StreamNames(w.t.Context())
	for name := range names.Name() {
		if strings.HasPrefix(name, "KV_") { // what groups have passed
			continue
		}
		found, err := readJetStream(w.t.Context(), js, name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, found...)
	}
	return ids, names.Err()
}

func readJetStream(ctx context.Context, js jetstream.JetStream, name string) (ids []int64, err error) {
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
		ids = append(ids, id)
	}
	return ids, nil
}

func (w *world) readEffects(reader string) ([]int64, error) {
	conn, err := pgx.Connect(w.t.Context(), w.consumer)
	if err != nil {
		return nil, err
	}
	defer conn.Close(w.t.Context())
	rows, err := conn.Query(w.t.Context(), "select event from effects where reader = $1", reader)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// readArchive reads the objects, which the S3 server has as files.
func (w *world) readArchive() (ids []int64, err error) {
	var segments []string
	err = filepath.WalkDir(w.store.Dir(), func(path string, _ fs.DirEntry, err error) error {
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
