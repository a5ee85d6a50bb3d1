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

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/op"
)

// Batches of lines. A line waits at most lineWait for its batch to fill up, since the
// input may be a terminal or a slow program.
const (
	linesPerBatch = 1000
	lineWait      = 100 * time.Millisecond
)

// linesHelp goes on in a sentence about transactions of up to 1,000 lines.
const linesHelp = `transaction. The first line that is wrong ends the command: all lines before it
are written, and their number is printed. After an interrupt, the transaction
under way is finished first. If the connection breaks during a transaction, the
error names the lines that may be written or not.`

// oneOrLines makes a command that writes one thing from its arguments, or with --lines
// many from the standard input. The flags are only for one thing.
func oneOrLines(cmd *cobra.Command, usage string, flags []string, one func(args []string) error, lines func() error) {
	fromLines := cmd.Flags().Bool("lines", false, usage)
	for _, flag := range flags {
		cmd.MarkFlagsMutuallyExclusive("lines", flag)
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *fromLines {
			return cobra.NoArgs(cmd, args)
		}
		return cobra.RangeArgs(1, 2)(cmd, args)
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		switch {
		case *fromLines:
			return lines()
		case args[0] == "-":
			hint := "to read many from the standard input: " + cmd.CommandPath() + " --lines"
			return usageError{errors.New("the first argument cannot be -"), hint}
		}
		return one(args)
	}
}

// lineWriter writes the lines of the standard input in batches, in order.
type lineWriter[T any] struct {
	verb, thing string // for the report: published, event
	parse       func(line) (T, error)
	write       func(ctx context.Context, batch []T) error // in one transaction

	progress *progress
	written  int
	doubt    string // the lines that may be written in spite of the error

	batch   []T
	numbers []int // of their lines
}

// run writes all lines and prints their number.
func (w *lineWriter[T]) run(cmd *cobra.Command, asJSON bool) error {
	w.progress = newProgress(cmd.ErrOrStderr(), w.verb)
	err := w.writeAll(cmd.Context(), cmd.InOrStdin())
	w.progress.end()
	if err != nil {
		err = fmt.Errorf("%w; %s %s before it", err, op.Were(w.written, w.thing), w.verb)
		if w.doubt != "" {
			err = fmt.Errorf("%w, and it is not known whether %s, too: look before you run it again", err, w.doubt)
		}
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]int{w.verb: w.written})
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", w.verb, op.Counted(w.written, w.thing))
	return err
}

func (w *lineWriter[T]) writeAll(ctx context.Context, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the reader
	lines := readLines(ctx, r)
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var idle <-chan time.Time
		if len(w.batch) > 0 {
			idle = time.After(lineWait)
		}
		select {
		case l, more := <-lines:
			if !more && ctx.Err() == nil {
				return w.flush(ctx)
			} else if !more {
				return ctx.Err()
			}
			if err := w.add(ctx, l); err != nil {
				return err
			}
		case <-ctx.Done(): // the input may never end
			return ctx.Err()
		case <-idle:
			if err := w.flush(ctx); err != nil {
				return err
			}
		}
	}
}

func (w *lineWriter[T]) add(ctx context.Context, l line) error {
	item, err := w.parse(l)
	if err != nil {
		if flushed := w.flush(ctx); flushed != nil {
			return flushed // it is about an earlier line
		}
		return err
	}
	w.batch, w.numbers = append(w.batch, item), append(w.numbers, l.number)
	if len(w.batch) == linesPerBatch {
		return w.flush(ctx)
	}
	return nil
}

// flush writes the batch. If the database refuses it, flush goes on line by line, to find
// the line that is wrong.
func (w *lineWriter[T]) flush(ctx context.Context) error {
	if len(w.batch) == 0 {
		return nil
	}
	defer func() { w.batch, w.numbers = w.batch[:0], w.numbers[:0] }()
	err := w.finish(ctx, w.batch)
	if err == nil {
		w.count(len(w.batch))
		return nil
	}
	if !isRefusal(err) {
		w.noteDoubt(err, w.numbers)
		return err
	}
	for i := range w.batch {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := w.finish(ctx, w.batch[i:i+1]); err != nil {
			w.noteDoubt(err, w.numbers[i:i+1])
			return fmt.Errorf("line %d: %w", w.numbers[i], err)
		}
		w.count(1)
	}
	return nil
}

// A batch that is under way when the command is interrupted gets this long to finish.
const finishTimeout = 30 * time.Second

// finish writes a batch even if the command is interrupted meanwhile: nobody would know
// whether a transaction that was broken off is committed.
func (w *lineWriter[T]) finish(ctx context.Context, batch []T) error {
	ending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(finishTimeout, cancel) })
	defer stop()
	return w.write(ending, batch)
}

// noteDoubt remembers lines that may be written in spite of an error.
func (w *lineWriter[T]) noteDoubt(err error, numbers []int) {
	if !isUncertain(err) {
		return
	}
	w.doubt = fmt.Sprintf("line %d was", numbers[0])
	if last := numbers[len(numbers)-1]; len(numbers) > 1 {
		w.doubt = fmt.Sprintf("lines %d to %d were", numbers[0], last)
	}
}

// isRefusal reports whether the database found fault with something in the batch.
func isRefusal(err error) bool {
	return errors.Is(err, posthorn.ErrInvalid) || errors.Is(err, posthorn.ErrRefused)
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

func (w *lineWriter[T]) count(n int) {
	w.written += n
	w.progress.at(w.written)
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
				passLine(ctx, lines, line{number: number, text: text})
			}
			if err == io.EOF || ctx.Err() != nil {
				return
			}
			if err != nil {
				passLine(ctx, lines, line{number: number, err: err})
				return
			}
		}
	}()
	return lines
}

func passLine(ctx context.Context, lines chan<- line, l line) {
	select {
	case lines <- l:
	case <-ctx.Done():
	}
}

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
	return l.wrong(err)
}

// wrong is the error of a line that cannot be read; nil without an error.
func (l line) wrong(err error) error {
	if err == nil {
		return nil
	}
	return usageError{error: fmt.Errorf("line %d: %w", l.number, err)}
}
