package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

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
func httpRows() (all []row) {
	for _, work := range []httpWork{createOverHTTP, workOverHTTP} {
		s := &sitting{
			name: "HTTP " + work.name,
			open: func(ctx context.Context, b *bench, system string) measure {
				handler := ourHandler
				if system == bareHTTP {
					handler = bareHandler
				}
				return b.asking(ctx, work, min(max(b.events/httpFraction, 100), 10_000), handler)
			},
		}
		measured := fmt.Sprintf("HTTP: %s, %d connections", work.name, httpClients)
		ours, peer := "the server", "a bare handler with the same SQL"
		all = append(all,
			s.row(row{work: measured + ", jobs", floor: atLeast(0.7), target: atLeast(0.9), unit: "/s", ours: ours, peer: peer}, 0, jobsSystem, bareHTTP),
			s.row(row{work: measured + ", p99", floor: atMost(2), target: atMost(1.25), unit: " ms", ours: ours, peer: peer}, 1, jobsSystem, bareHTTP))
	}
	return all
}

// bareHTTP is a limit and no system, so it has no name for readers.
const bareHTTP = "bare handler"

// httpWork is work on jobs over HTTP, a job at a time.
type httpWork struct {
	name   string
	before func(ctx context.Context, d *database, n int) // prepares n jobs
	do     func(ctx context.Context, c *httpClient, i int)
}

var createOverHTTP = httpWork{
	name:   "create a job",
	before: func(context.Context, *database, int) {},
	do: func(ctx context.Context, c *httpClient, i int) {
		body := `{"title":"job ` + strconv.Itoa(i) + `","tags":"new,fresh","payload":` + payload + `}`
		c.request(ctx, "POST", "/events", body, http.StatusCreated, nil)
	},
}

// workOverHTTP is the life of a job after its creation, as a worker that speaks HTTP
// has it.
var workOverHTTP = httpWork{
	name:   "claim a job and complete it",
	before: func(ctx context.Context, d *database, n int) { d.enqueue(ctx, (n+999)/1000*1000) },
	do: func(ctx context.Context, c *httpClient, i int) {
		worker := "bench:" + strconv.Itoa(i%httpClients)
		var job struct {
			ID int64 `json:"id"`
		}
		c.request(ctx, "GET", "/events/subscribe?tags=common&worker_id="+worker, "", http.StatusOK, &job)
		c.request(ctx, "POST", "/events/"+strconv.FormatInt(job.ID, 10)+"/complete",
			`{"worker_id":"`+worker+`","execution_time_ms":12,"status_code":200}`, http.StatusOK, nil)
	},
}

// asking does the work for n jobs over the connections, and returns the jobs per second
// and the 99th percentile of the milliseconds of each.
func (b *bench) asking(ctx context.Context, work httpWork, n int, handler makeHandler) measure {
	d := b.newDatabase(ctx)
	base := d.serve(ctx, handler)
	transport := &http.Transport{MaxIdleConnsPerHost: httpClients, MaxConnsPerHost: httpClients}
	d.atEnd(transport.CloseIdleConnections)
	client := &httpClient{http.Client{Transport: transport}, base}
	return func(ctx context.Context) []float64 {
		work.before(ctx, d, n)
		d.exec(ctx, "vacuum analyze posthorn.enqueued_jobs, posthorn.ready_jobs, posthorn.running_jobs")
		taken := make([]float64, n)
		start := time.Now()
		eachOf(ctx, httpClients, n, func(ctx context.Context, i int) {
			began := time.Now()
			work.do(ctx, client, i)
			taken[i] = milliseconds(time.Since(began))
		})
		return []float64{float64(n) / time.Since(start).Seconds(), percentile(taken, 99)}
	}
}

// makeHandler makes the HTTP handler of one side, and a function that closes it.
type makeHandler func(*pgxpool.Pool) (http.Handler, func())

// serve listens until the database is dropped.
func (d *database) serve(ctx context.Context, handler makeHandler) (url string) {
	pool := openPool(ctx, d.url(), httpPool, httpPool)
	h, end := handler(pool)
	web := &http.Server{Handler: h}
	d.atEnd(func() {
		web.Close()
		end()
		pool.Close()
	})
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	go func() { _ = web.Serve(listener) }() // ends with Close
	return "http://" + listener.Addr().String()
}

// httpClient sends requests to a server.
type httpClient struct {
	http.Client
	base string
}

// request sends a request, checks the status of the answer, and decodes it unless into
// is nil.
func (c *httpClient) request(ctx context.Context, method, path, body string, want int, into any) {
	r := must(http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body)))
	r.Header.Set("Content-Type", "application/json")
	response := must(c.Do(r))
	defer response.Body.Close()
	answer := must(io.ReadAll(response.Body))
	if response.StatusCode != want {
		fail("%s %s: %d %s", method, path, response.StatusCode, answer)
	}
	if into != nil {
		check(json.Unmarshal(answer, into))
	}
}

// ourHandler is Posthorn's server, as programs use it.
func ourHandler(pool *pgxpool.Pool) (http.Handler, func()) {
	ph := must(posthorn.Open(context.Background(), posthorn.Config{Pool: pool, Logger: quiet}))
	s := api.New(ph, api.Options{Logger: quiet})
	return s, func() { s.Drain(); ph.Close() }
}
