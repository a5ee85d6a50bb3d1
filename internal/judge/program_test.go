package judge

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthorn/posthorn"
)

// program is the program with which the client for Go is judged.
type program struct {
	client *posthorn.Client
	stop   context.CancelFunc
	ended  chan error // of Run

	mu    sync.Mutex
	out   *json.Encoder
	gate  chan struct{} // closed by go
	calls map[string]int
}

// beProgram reads commands until stop.
func beProgram(in io.Reader, out io.Writer) error {
	p := &program{out: json.NewEncoder(out), gate: make(chan struct{}), calls: map[string]int{}}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		ids, err := p.obey(context.Background(), c)
		p.say(report{At: "answer", IDs: ids, Error: text(err)})
		if c.Do == "stop" {
			go func() {
				err := <-p.ended
				p.client.Close()
				p.say(report{At: "stopped", Error: text(err)})
				os.Exit(0)
			}()
		}
	}
	return errors.New("the suite has ended")
}

func text(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func (p *program) say(r report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(r) // the suite has ended otherwise
}

func (p *program) obey(ctx context.Context, c command) (ids []string, err error) {
	switch c.Do {
	case "open":
		config := posthorn.Config{DatabaseURL: c.Database}
		if c.Traced {
			config.TracerProvider = sdktrace.NewTracerProvider()
		}
		p.client, err = posthorn.Open(ctx, config)
		return nil, err
	case "handle":
		p.handle(c)
	case "work":
		config := posthorn.WorkConfig{LeaseFor: ms(c.LeaseMS), Concurrency: c.Concurrency}
		p.client.Work([]string{c.Tag}, config, func(ctx context.Context, job posthorn.Job) error {
			return p.call(ctx, &call{
				handler: c.Tag, id: job.ID, key: job.Title, attempt: job.Attempt, payload: job.Payload, metadata: job.Metadata, job: job,
			}, c.Actions)
		})
	case "run":
		ctx, p.stop = context.WithCancel(ctx)
		p.ended = make(chan error, 1)
		go func() { p.ended <- p.client.Run(ctx) }()
	case "publish", "enqueue":
		return p.send(ctx, c)
	case "go":
		p.mu.Lock()
		close(p.gate)
		p.gate = make(chan struct{})
		p.mu.Unlock()
	case "stop":
		p.stop()
	default:
		return nil, fmt.Errorf("unknown command %q", c.Do)
	}
	return nil, nil
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func (p *program) handle(c command) {
	g := p.client.Group(c.Group, posthorn.GroupConfig{
		Start: posthorn.Beginning, Order: posthorn.Order(c.Order), LeaseFor: ms(c.LeaseMS), Concurrency: c.Concurrency,
		Attempts: c.Attempts, Delays: []time.Duration{time.Millisecond},
	})
	handler := func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		return p.call(ctx, &call{
			handler: c.Group, id: e.ID, key: e.Key, attempt: e.Delivery, payload: e.Payload, metadata: e.Metadata, tx: tx,
		}, c.Actions)
	}
	if c.InTx {
		g.HandleTx("judged", "judged.*", handler)
		return
	}
	g.Handle("judged", "judged.*", func(ctx context.Context, e posthorn.Event) error { return handler(ctx, nil, e) })
}

// send publishes events or enqueues jobs, in a transaction with an effect if it has an ending.
func (p *program) send(ctx context.Context, c command) (ids []string, err error) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": c.Traceparent})
	var db posthorn.DB = p.client.Pool()
	if c.Ending != "" {
		tx, err := p.client.Pool().Begin(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { _ = tx.Rollback(ctx) }() // it may have been committed
		db = tx
	}
	var sent []int64
	if c.Do == "publish" {
		var messages []posthorn.Message
		for _, m := range c.Messages {
			messages = append(messages, posthorn.Message{Type: m.Type, Key: m.Key, Payload: json.RawMessage(m.Payload)})
		}
		sent, err = p.client.Publish(ctx, db, messages...)
	} else {
		var jobs []posthorn.NewJob
		for _, m := range c.Messages {
			jobs = append(jobs, posthorn.NewJob{
				Title: m.Type, Tags: []string{m.Tag}, Payload: json.RawMessage(m.Payload), MaxRetries: 100, RetryDelays: []time.Duration{time.Millisecond},
			})
		}
		sent, err = p.client.Enqueue(ctx, db, jobs...)
	}
	for i, id := range sent {
		ids = append(ids, strconv.FormatInt(id, 10))
		if c.Ending != "" && err == nil {
			_, err = db.Exec(ctx, insertEffect, c.Do, id, c.Messages[i].Key, "")
		}
	}
	if tx, ok := db.(pgx.Tx); ok && err == nil && c.Ending == "commit" {
		err = tx.Commit(ctx)
	}
	return ids, err
}

const insertEffect = "insert into effects (handler, id, key, name) values ($1, $2, $3, $4)"

// call is one call of a handler.
type call struct {
	handler, key      string
	id                int64
	attempt           int
	payload, metadata json.RawMessage
	tx                pgx.Tx       // nil outside of a transaction
	job               posthorn.Job // its ID is 0 for an event
	values            map[string]string
	times             int // calls of this handler for this event or job, in this process
}

func (p *program) call(ctx context.Context, c *call, actions []action) (err error) {
	name := fmt.Sprint(c.handler, c.id)
	p.mu.Lock()
	p.calls[name]++
	c.times = p.calls[name]
	p.mu.Unlock()
	c.values = map[string]string{}
	about := report{Handler: c.handler, ID: strconv.FormatInt(c.id, 10), Key: c.key, Attempt: c.attempt}
	begin := about
	begin.At, begin.Payload, begin.Metadata = "begin", string(c.payload), string(c.metadata)
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		begin.Trace = span.TraceID().String()
	}
	p.say(begin)
	defer func() {
		about.At, about.Error = "end", text(err)
		p.say(about)
	}()
	if c.job.ID != 0 {
		defer func() {
			if c.tx != nil {
				_ = c.tx.Rollback(context.WithoutCancel(ctx)) // it may have been committed
			}
		}()
	}
	for _, a := range actions {
		if a.Times > 0 && c.times > a.Times || a.OneIn > 0 && rand.IntN(a.OneIn) > 0 {
			continue
		}
		if err := p.act(ctx, c, a, about); err != nil {
			return err
		}
	}
	return nil
}

// act does one action of a handler.
func (p *program) act(ctx context.Context, c *call, a action, about report) (err error) {
	switch a.Do {
	case "effect":
		return p.effect(ctx, c.db(p), c, a.Name)
	case "hold":
		p.mu.Lock()
		gate := p.gate
		p.mu.Unlock()
		about.At = "hold"
		p.say(about)
		<-gate
	case "linger":
		time.Sleep(rand.N(ms(a.MS)))
	case "error":
		return errors.New("told to fail")
	case "permanent":
		return posthorn.Permanent(errors.New("told to fail for good"))
	case "retry":
		return posthorn.RetryAfter(ms(a.MS), errors.New("told to fail"))
	case "snooze":
		return posthorn.Snooze(ms(a.MS))
	default:
		return p.actOnJob(ctx, c, a)
	}
	return err
}

func (p *program) actOnJob(ctx context.Context, c *call, a action) (err error) {
	value := fmt.Sprintf("attempt %d", c.attempt)
	switch a.Do {
	case "begin":
		c.tx, err = p.client.Pool().Begin(ctx)
	case "complete":
		err = c.job.Complete(ctx, c.tx)
	case "commit":
		err = c.tx.Commit(ctx)
	case "step":
		c.values[a.Name], err = posthorn.Step(ctx, c.job, a.Name, func(ctx context.Context) (string, error) {
			return value, p.effect(ctx, p.client.Pool(), c, a.Name)
		})
	case "step_tx":
		c.values[a.Name], err = posthorn.StepTx(ctx, c.job, a.Name, func(ctx context.Context, tx pgx.Tx) (string, error) {
			return value, p.effect(ctx, tx, c, a.Name)
		})
	case "sleep":
		err = c.job.Sleep(ctx, a.Name, ms(a.MS))
	case "await":
		var e posthorn.Event
		e, err = c.job.Await(ctx, a.Name, a.Type, a.Key, ms(a.MS))
		c.values[a.Name] = strconv.FormatInt(e.ID, 10)
	case "result":
		err = c.job.SetResult(c.values)
	default:
		err = fmt.Errorf("unknown action %q", a.Do)
	}
	return err
}

// db is the transaction of the call, or else the pool.
func (c *call) db(p *program) posthorn.DB {
	if c.tx != nil {
		return c.tx
	}
	return p.client.Pool()
}

func (p *program) effect(ctx context.Context, db posthorn.DB, c *call, name string) error {
	_, err := db.Exec(ctx, insertEffect, c.handler, c.id, c.key, name)
	return err
}
