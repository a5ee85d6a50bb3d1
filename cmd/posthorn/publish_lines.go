package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/sealing"
)

const (
	linesPerBatch = 1000
	// What has arrived waits this long for more: nobody who types, or pipes from
	// a slow program, waits for a batch to be full.
	lineWait = 100 * time.Millisecond
)

func (a *app) publishLines(cmd *cobra.Command, keepers keeperFlags, asJSON bool) error {
	ctx := cmd.Context()
	return a.withDatabase(ctx, func(conn *pgx.Conn) error {
		return keepers.withBox(ctx, conn, a.log, func(box *sealing.Box) error {
			w := lineWriter[pg.Message]{
				parse: parseMessage,
				many: func(ctx context.Context, batch []pg.Message) error {
					return a.sealed(ctx, box, batch, func(sealed []pg.Message) error { return a.publishBatch(ctx, conn, sealed) })
				},
				one: func(ctx context.Context, m pg.Message) error {
					return a.sealed(ctx, box, []pg.Message{m}, func(sealed []pg.Message) error {
						_, err := pg.Publish(ctx, conn, a.namespace, sealed[0])
						return err
					})
				},
			}
			return w.run(cmd, "published", "events", asJSON)
		})
	})
}

// sealed publishes messages with those sealed that have to be; once more if that
// has changed while a long input was read.
func (a *app) sealed(ctx context.Context, box *sealing.Box, plain []pg.Message, publish func([]pg.Message) error) error {
	sealed, err := box.Seal(ctx, a.namespace, plain)
	if err == nil {
		err = publish(sealed)
	}
	if !box.Stale(a.namespace, plain, err) {
		return err
	}
	if sealed, err = box.Seal(ctx, a.namespace, plain); err != nil {
		return err
	}
	return publish(sealed)
}

// run writes the lines of the standard input, and says how many.
func (p *lineWriter[T]) run(cmd *cobra.Command, done, what string, asJSON bool) error {
	p.progress = newProgress(cmd.ErrOrStderr(), done)
	err := p.write(cmd.Context(), cmd.InOrStdin())
	p.progress.end()
	if err != nil {
		err = fmt.Errorf("%w; %d %s were %s before it", err, p.written, what, done)
		if p.doubt != "" {
			err = fmt.Errorf("%w, and it is not known whether %s, too: look before you run it again", err, p.doubt)
		}
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]int{done: p.written})
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %d %s\n", done, p.written, what)
	return err
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

// lineWriter writes what lines say in batches, in order.
type lineWriter[T any] struct {
	parse    func(line) (T, error)
	many     func(ctx context.Context, batch []T) error // in one transaction
	one      func(ctx context.Context, item T) error
	progress *progress
	written  int
	doubt    string // the lines of a batch of which it is not known whether it is written

	batch   []T
	numbers []int // of their lines
}

func (p *lineWriter[T]) write(ctx context.Context, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the reader
	lines := readLines(ctx, r)
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var idle <-chan time.Time
		if len(p.batch) > 0 {
			idle = time.After(lineWait)
		}
		select {
		case l, more := <-lines:
			if !more && ctx.Err() == nil {
				return p.flush(ctx)
			} else if !more {
				return ctx.Err()
			}
			if err := p.add(ctx, l); err != nil {
				return err
			}
		case <-ctx.Done(): // nothing more may ever come
			return ctx.Err()
		case <-idle:
			if err := p.flush(ctx); err != nil {
				return err
			}
		}
	}
}

func (p *lineWriter[T]) add(ctx context.Context, l line) error {
	item, err := p.parse(l)
	if err != nil {
		if flushed := p.flush(ctx); flushed != nil {
			return flushed // it is about an earlier line
		}
		return err
	}
	p.batch, p.numbers = append(p.batch, item), append(p.numbers, l.number)
	if len(p.batch) == linesPerBatch {
		return p.flush(ctx)
	}
	return nil
}

func parseMessage(l line) (m pg.Message, err error) { return m, l.decode(&m) }

// decode reads the one document of a line.
func (l line) decode(into any) error {
	if l.err != nil {
		return fmt.Errorf("read line %d: %w", l.number, l.err)
	}
	decoder := json.NewDecoder(bytes.NewReader(l.text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil && decoder.More() {
		err = errors.New("more than one document")
	}
	if err != nil {
		return usageError{error: fmt.Errorf("line %d: %w", l.number, err)}
	}
	return nil
}

// A batch that has begun when the command is interrupted is finished, in so long.
const batchPatience = 30 * time.Second

// flush writes what has gathered, in one transaction. When the database
// refuses that, it goes on line by line, to find the one that is wrong.
func (p *lineWriter[T]) flush(ctx context.Context) error {
	if len(p.batch) == 0 {
		return nil
	}
	defer func() { p.batch, p.numbers = p.batch[:0], p.numbers[:0] }()
	err := p.finish(ctx, func(ctx context.Context) error { return p.many(ctx, p.batch) })
	if err == nil {
		p.count(len(p.batch))
		return nil
	}
	if !errors.Is(err, posthorn.ErrInvalid) && !pg.IsPlaintext(err) && !pg.IsWrongKey(err) {
		p.mayBeWritten(err, p.numbers)
		return err
	}
	for i, item := range p.batch {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := p.finish(ctx, func(ctx context.Context) error { return p.one(ctx, item) }); err != nil {
			p.mayBeWritten(err, p.numbers[i:i+1])
			return fmt.Errorf("line %d: %w", p.numbers[i], err)
		}
		p.count(1)
	}
	return nil
}

// finish writes although the command may be interrupted meanwhile: of a
// transaction that is broken off nobody knows whether it was committed.
func (p *lineWriter[T]) finish(ctx context.Context, write func(context.Context) error) error {
	ending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(batchPatience, cancel) })
	defer stop()
	return write(ending)
}

// mayBeWritten notes lines if they may be written in spite of an error.
func (p *lineWriter[T]) mayBeWritten(err error, numbers []int) {
	if !isUncertain(err) {
		return
	}
	p.doubt = fmt.Sprintf("line %d was", numbers[0])
	if last := numbers[len(numbers)-1]; len(numbers) > 1 {
		p.doubt = fmt.Sprintf("lines %d to %d were", numbers[0], last)
	}
}

// isUncertain reports whether a transaction may have been committed in spite of an
// error. An error of the server rolls it back, unless the connection ends with it.
func isUncertain(err error) bool {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refused.SeverityUnlocalized != "ERROR"
	}
	_, broken := errors.AsType[net.Error](err)
	return !pgconn.SafeToRetry(err) && (broken || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, context.Canceled))
}

func (p *lineWriter[T]) count(n int) {
	p.written += n
	p.progress.at(p.written)
}

// publishBatch keeps every byte of the payloads, also where some messages are
// more than a row in the log.
func (a *app) publishBatch(ctx context.Context, conn *pgx.Conn, batch []pg.Message) error {
	for _, m := range batch {
		if m.DeliverAt != nil || m.DedupKey != "" {
			return a.publishOneByOne(ctx, conn, batch)
		}
	}
	_, err := pg.PublishBatch(ctx, conn, a.namespace, batch)
	return err
}

func (a *app) publishOneByOne(ctx context.Context, conn *pgx.Conn, batch []pg.Message) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, m := range batch {
			if _, err := pg.Publish(ctx, tx, a.namespace, m); err != nil {
				return err
			}
		}
		return nil
	})
}
