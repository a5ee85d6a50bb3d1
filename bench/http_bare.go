package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// bare has simple handlers that use the SQL functions and net/http, without
// authentication.
type bare struct{ pool *pgxpool.Pool }

func bareHandler(pool *pgxpool.Pool) (http.Handler, func()) {
	b := bare{pool}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /events", answering(http.StatusCreated, b.create))
	mux.HandleFunc("GET /events/subscribe", answering(http.StatusOK, b.subscribe))
	mux.HandleFunc("POST /events/{id}/complete", answering(http.StatusOK, b.complete))
	return mux, func() {}
}

func answering(status int, do func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := do(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		var body bytes.Buffer
		if err := json.NewEncoder(&body).Encode(answer); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(body.Bytes()) // the client checks the answer
	}
}

type bareJob struct {
	ID         int64           `json:"id"`
	Title      string          `json:"title"`
	Tags       string          `json:"tags"`
	Status     string          `json:"status"`
	Payload    json.RawMessage `json:"payload"`
	RetryCount int             `json:"retry_count"`
	MaxRetries int             `json:"max_retries"`
	CreatedAt  time.Time       `json:"created_at"`
}

func (b bare) create(r *http.Request) (any, error) {
	job := bareJob{Status: "PENDING", MaxRetries: 3}
	if err := json.NewDecoder(r.Body).Decode(&job); err != nil {
		return nil, err
	}
	var isNew bool
	err := b.pool.QueryRow(r.Context(), `
		select id, is_new, created_at from posthorn.enqueue_job('default', $1::text, $2::json, $3::text[])`,
		job.Title, job.Payload, strings.Split(job.Tags, ",")).Scan(&job.ID, &isNew, &job.CreatedAt)
	if err == nil && !isNew {
		err = errors.New("it was there before")
	}
	return job, err
}

func (b bare) subscribe(r *http.Request) (any, error) {
	query := r.URL.Query()
	job := bareJob{Status: "PROCESSING"}
	var tags []string
	err := b.pool.QueryRow(r.Context(), `
		select id, title, tags, payload, retry_count, max_retries, created_at from posthorn.claim_jobs('default', $1::text, $2::text[])`,
		query.Get("worker_id"), strings.Split(query.Get("tags"), ",")).
		Scan(&job.ID, &job.Title, &tags, &job.Payload, &job.RetryCount, &job.MaxRetries, &job.CreatedAt)
	job.Tags = strings.Join(tags, ",")
	return job, err
}

type bareReport struct {
	EventID         int64     `json:"event_id"`
	WorkerID        string    `json:"worker_id"`
	Action          string    `json:"action"`
	StatusCode      int       `json:"status_code"`
	ExecutionTimeMS int64     `json:"execution_time_ms"`
	CreatedAt       time.Time `json:"created_at"`
}

func (b bare) complete(r *http.Request) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, err
	}
	var report bareReport
	if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
		return nil, err
	}
	err = b.pool.QueryRow(r.Context(), `
		select event_id, worker_id, action, status_code, execution_time_ms, created_at
		from posthorn.complete_job($1::bigint, $2::text, status_code => $3::int, execution_time_ms => $4::bigint, namespace => 'default')`,
		id, report.WorkerID, report.StatusCode, report.ExecutionTimeMS).
		Scan(&report.EventID, &report.WorkerID, &report.Action, &report.StatusCode, &report.ExecutionTimeMS, &report.CreatedAt)
	return report, err
}
