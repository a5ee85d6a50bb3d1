package work_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
)

// BenchmarkJobs reports jobs per second, for comparing two states of the code side
// by side.
func BenchmarkJobs(b *testing.B) {
	const total = 20_000
	ph, err := posthorn.Open(b.Context(), posthorn.Config{
		DatabaseURL: posthorntest.Database(b), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer ph.Close()
	jobs := make([]posthorn.NewJob, 1000)
	for i := range jobs {
		jobs[i] = posthorn.NewJob{Title: "none", Tags: []string{"mail"}}
	}
	for range total / len(jobs) {
		if _, err := ph.Enqueue(b.Context(), ph.Pool(), jobs...); err != nil {
			b.Fatal(err)
		}
	}
	var n atomic.Int64
	all := make(chan struct{})
	ph.Work([]string{"mail"}, posthorn.WorkConfig{}, func(context.Context, posthorn.Job) error {
		if n.Add(1) == total {
			close(all)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(b.Context())
	began := time.Now()
	done := make(chan error)
	go func() { done <- ph.Run(ctx) }()
	<-all
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(total/time.Since(began).Seconds(), "jobs/s")
}
