package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	api "github.com/posthorn/posthorn/server"
)

const (
	httpClients  = 32
	httpPool     = 16 // connections of the server to the database
	httpFraction = 40
)

// httpRows compare the server's JSON API of jobs with handlers of net/http that only
// call the same SQL functions.
var httpRows = func() (all []row) {
	for _, work := range []httpWork{createOverHTTP, subscribeOverHTTP, completeOverHTTP} {
		all = append(all, httpRow(work, "requests", atLeast(0.7), atLeast(0.9), "/s", perSecond),
			httpRow(work, "p99", atMost(2), atMost(1.25), " ms", percentile99))
	}
	return all
}()

func httpRow(work httpWork, what string, floor, target limit, unit string, figure func([]time.Duration, time.Duration) float64) row {
	return row{
		work:  fmt.Sprintf("HTTP: %s, %d connections, %s", work.name, httpClients, what),
		floor: floor, target: target, unit: unit,
		ours: "the server", peer: "a bare handler with the same SQL",
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			n := min(max(b.events/httpFraction, 100), 10_000)
			if ours, err = b.asking(ctx, work, n, figure, ourHandler); err != nil {
				return nil, nil, err
			}
			peer, err = b.asking(ctx, work, n, figure, bareHandler)
			return ours, peer, err
		},
	}
}

func perSecond(taken []time.Duration, all time.Duration) float64 {
	return float64(len(taken)) / all.Seconds()
}

func percentile99(taken []time.Duration, _ time.Duration) float64 {
	slices.Sort(taken)
	return float64(taken[len(taken)*99/100].Microseconds()) / 1000
}

// httpWork is one kind of request.
type httpWork struct {
	name string
	// before prepares n requests, and returns the ids of their jobs.
	before func(ctx context.Context, d *database, n int) ([]int64, error)
	// request returns the i-th request, about the i-th of the ids if there are any.
	request func(ids []int64, i int) (method, path, body string, status int)
}

var createOverHTTP = httpWork{
	name:   "create a job",
	before: func(context.Context, *database, int) ([]int64, error) { return nil, nil },
	request: func(_ []int64, i int) (method, path, body string, status int) {
		return "POST", "/events", `{"title":"job ` + strconv.Itoa(i) + `","tags":"new,fresh","payload":` + payload + `}`, 201
	},
}

var subscribeOverHTTP = httpWork{
	name: "subscribe",
	before: func(ctx context.Context, d *database, n int) ([]int64, error) {
		if _, err := d.finishClaimed(ctx); err != nil { // jobs of the previous round
			return nil, err
		}
		return nil, d.enqueue(ctx, (n+999)/1000*1000)
	},
	request: func(_ []int64, i int) (method, path, body string, status int) {
		return "GET", "/events/subscribe?tags=common&worker_id=bench:" + strconv.Itoa(i%httpClients), "", 200
	},
}

var completeOverHTTP = httpWork{
	name: "complete",
	before: func(ctx context.Context, d *database, n int) ([]int64, error) {
		if err := d.enqueue(ctx, (n+999)/1000*1000); err != nil {
			return nil, err
		}
		rows, err := d.Query(ctx, "select id from posthorn.claim_jobs('default', 'bench:1', array['common'], $1::int, '1 hour')", n)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[int64])
	},
	request: func(ids []int64, i int) (method, path, body string, status int) {
		return "POST", "/events/" + strconv.FormatInt(ids[i], 10) + "/complete", `{"worker_id":"bench:1","execution_time_ms":12,"status_code":200}`, 200
	},
}

// finishClaimed completes the jobs that are taken and not finished.
func (d *database) finishClaimed(ctx context.Context) (int, error) {
	tag, err := d.Exec(ctx, `
		select posthorn.complete_jobs(r.worker, r.jobs)
		from (select worker, array_agg(job) as jobs from posthorn.running_jobs group by 1) r`)
	return int(tag.RowsAffected()), err
}

// asking sends n requests per round over the connections, and makes a figure of their
// durations.
func (b *bench) asking(ctx context.Context, work httpWork, n int, figure func([]time.Duration, time.Duration) float64,
	handler makeHandler,
) (side, error) {
	d, err := b.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	base, err := d.serve(ctx, handler)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: httpClients, MaxConnsPerHost: httpClients}
	d.atEnd(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	return func(ctx context.Context) (float64, error) {
		ids, err := work.before(ctx, d, n)
		if err != nil {
			return 0, err
		}
		if _, err := d.Exec(ctx, "vacuum analyze posthorn.enqueued_jobs, posthorn.ready_jobs, posthorn.running_jobs"); err != nil {
			return 0, err
		}
		taken := make([]time.Duration, n)
		start := time.Now()
		err = eachOf(ctx, n, func(ctx context.Context, i int) error {
			began := time.Now()
			method, path, body, status := work.request(ids, i)
			err := request(ctx, client, method, base+path, body, status)
			taken[i] = time.Since(began)
			return err
		})
		return figure(taken, time.Since(start)), err
	}, nil
}

// makeHandler makes the HTTP handler of one side, and a function that closes it.
type makeHandler func(*pgxpool.Pool) (http.Handler, func(), error)

// serve listens until the database is dropped.
func (d *database) serve(ctx context.Context, handler makeHandler) (url string, err error) {
	config, err := pgxpool.ParseConfig(d.url())
	if err != nil {
		return "", err
	}
	config.MaxConns, config.MinConns = httpPool, httpPool
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return "", err
	}
	h, end, err := handler(pool)
	if err != nil {
		pool.Close()
		return "", err
	}
	web := &http.Server{Handler: h}
	d.atEnd(func() {
		web.Close()
		end()
		pool.Close()
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { _ = web.Serve(listener) }() // ends with Close
	return "http://" + listener.Addr().String(), nil
}

// eachOf calls do n times, one concurrent call for each client.
func eachOf(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range httpClients {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

func request(ctx context.Context, client *http.Client, method, url, body string, want int) error {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != want {
		err = fmt.Errorf("%s %s: %d %s", method, url, response.StatusCode, answer)
	}
	return err
}

// ourHandler is Posthorn's server, as programs use it.
func ourHandler(pool *pgxpool.Pool) (http.Handler, func(), error) {
	ph, err := posthorn.Open(context.Background(), posthorn.Config{Pool: pool, Logger: quiet})
	if err != nil {
		return nil, nil, err
	}
	s := api.New(ph, api.Options{Logger: quiet})
	return s, func() { s.Drain(); ph.Close() }, nil
}
