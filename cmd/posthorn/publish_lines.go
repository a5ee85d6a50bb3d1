package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/internal/pg"
)

const (
	linesPerBatch = 1000
	// What has arrived waits this long for more: nobody who types, or pipes from
	// a slow program, waits for a batch to be full.
	lineWait = 100 * time.Millisecond
)

func (a *app) publishLines(cmd *cobra.Command, asJSON bool) error {
	ctx := cmd.Context()
	return a.withDatabase(ctx, func(conn *pgx.Conn) error {
		p := linePublisher{conn: conn, namespace: a.namespace, progress: newProgress(cmd.ErrOrStderr(), "published")}
		err := p.publish(ctx, cmd.InOrStdin())
		p.progress.end()
		if err != nil {
			return fmt.Errorf("%w; %d events were published before it", err, p.published)
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), map[string]int{"published": p.published})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "published %d events\n", p.published)
		return err
	})
}

// line is one line of the input, or the error that ended it.
type line struct {
	number int
	text   []byte
	err    error
}

// readLines sends lines, without their ends, until the input ends.
func readLines(ctx context.Context, r io.Reader) <-chan line {
	lines := make(chan line, linesPerBatch)
	go func() {
		defer close(lines)
		reader := bufio.NewReaderSize(r, 1<<16)
		for number := 1; ; number++ {
			text, err := reader.ReadBytes('\n')
			if text = bytes.TrimSpace(text); len(text) > 0 {
				send(ctx, lines, line{number: number, text: text})
			}
			if err == io.EOF || ctx.Err() != nil {
				return
			}
			if err != nil {
				send(ctx, lines, line{number: number, err: err})
				return
			}
		}
	}()
	return lines
}

func send(ctx context.Context, lines chan<- line, l line) {
	select {
	case lines <- l:
	case <-ctx.Done():
	}
}

// linePublisher publishes messages in batches, in order.
type linePublisher struct {
	conn      *pgx.Conn
	namespace string
	progress  *progress
	published int

	batch   []pg.Message
	numbers []int // of their lines
}

func (p *linePublisher) publish(ctx context.Context, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the reader
	lines := readLines(ctx, r)
	for {
		var idle <-chan time.Time
		if len(p.batch) > 0 {
			idle = time.After(lineWait)
		}
		select {
		case l, more := <-lines:
			if !more {
				return errors.Join(p.flush(ctx), ctx.Err())
			}
			if err := p.add(ctx, l); err != nil {
				return err
			}
		case <-idle:
			if err := p.flush(ctx); err != nil {
				return err
			}
		}
	}
}

func (p *linePublisher) add(ctx context.Context, l line) error {
	m, err := parseMessage(l)
	if err != nil {
		if flushed := p.flush(ctx); flushed != nil {
			return flushed // it is about an earlier line
		}
		return err
	}
	p.batch, p.numbers = append(p.batch, m), append(p.numbers, l.number)
	if len(p.batch) == linesPerBatch {
		return p.flush(ctx)
	}
	return nil
}

func parseMessage(l line) (pg.Message, error) {
	if l.err != nil {
		return pg.Message{}, fmt.Errorf("read line %d: %w", l.number, l.err)
	}
	var m pg.Message
	decoder := json.NewDecoder(bytes.NewReader(l.text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&m)
	if err == nil && decoder.More() {
		err = errors.New("more than one document")
	}
	if err != nil {
		return pg.Message{}, usageError{error: fmt.Errorf("line %d: %w", l.number, err)}
	}
	return m, nil
}

// flush publishes what has gathered, in one transaction. When the database
// refuses that, it goes on line by line, to find the one that is wrong.
func (p *linePublisher) flush(ctx context.Context) error {
	if len(p.batch) == 0 {
		return nil
	}
	defer func() { p.batch, p.numbers = p.batch[:0], p.numbers[:0] }()
	err := p.publishBatch(ctx)
	if err == nil {
		p.count(len(p.batch))
		return nil
	}
	if !errors.Is(err, pg.ErrInvalid) {
		return err
	}
	for i, m := range p.batch {
		if _, err := pg.Publish(ctx, p.conn, p.namespace, m); err != nil {
			return fmt.Errorf("line %d: %w", p.numbers[i], err)
		}
		p.count(1)
	}
	return nil
}

func (p *linePublisher) count(n int) {
	p.published += n
	p.progress.at(p.published)
}

// publishBatch keeps every byte of the payloads, also where some messages are
// more than a row in the log.
func (p *linePublisher) publishBatch(ctx context.Context) error {
	for _, m := range p.batch {
		if m.DeliverAt != nil || m.DedupKey != "" {
			return p.publishOneByOne(ctx)
		}
	}
	_, err := pg.PublishBatch(ctx, p.conn, p.namespace, p.batch)
	return err
}

func (p *linePublisher) publishOneByOne(ctx context.Context) error {
	return pgx.BeginFunc(ctx, p.conn, func(tx pgx.Tx) error {
		for _, m := range p.batch {
			if _, err := pg.Publish(ctx, tx, p.namespace, m); err != nil {
				return err
			}
		}
		return nil
	})
}
