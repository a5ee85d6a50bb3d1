package sealing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/seal"
)

// publishKeyed publishes the secret with a key, so that a job can wait for it.
func (w *world) publishKeyed(key string) {
	w.T.Helper()
	message := posthorn.Message{Type: "diagnosed", Key: key, Stream: "patients", Payload: secret}
	if _, err := w.Publish(w.T.Context(), w.Pool(), message); err != nil {
		w.T.Fatal(err)
	}
}

// enqueueJob enqueues a job that may fail once, and is tried again at once.
func (w *world) enqueueJob() int64 {
	w.T.Helper()
	ids, err := w.Enqueue(w.T.Context(), w.Pool(), posthorn.NewJob{Title: "treat", MaxRetries: 2, RetryDelays: []time.Duration{0}})
	if err != nil {
		w.T.Fatal(err)
	}
	return ids[0]
}

// job returns a job once it has a status.
func (w *world) job(id int64, status string) (job admin.JobStatus) {
	w.T.Helper()
	await.True(w.T, "the job is "+status, func() bool {
		var err error
		if job, err = w.Admin().Job(w.T.Context(), id); err != nil {
			w.T.Fatal(err)
		}
		return job.Status == status
	})
	return job
}

// A sealed event for which a job waits is opened for its handler, and for that of a later attempt in
// another process. It stays sealed among the steps of the job.
func TestAwaitedEventIsOpened(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	got := make(chan posthorn.Event, 10)
	handler := func(end error) posthorn.JobHandler {
		return func(ctx context.Context, job posthorn.Job) error {
			e, err := job.Await(ctx, "diagnosis", "diagnosed", "patient-7", time.Hour)
			if err != nil {
				return err
			}
			got <- e
			return end
		}
	}
	check := func(when string) {
		t.Helper()
		if e := <-got; !strings.Contains(string(e.Payload), marker) || !e.Confidential || e.Stream != "patients" {
			t.Errorf("%s it got %s of %s, confidential %v", when, e.Payload, e.Stream, e.Confidential)
		}
	}
	c.Work(nil, posthorn.WorkConfig{}, handler(posthorn.RetryAfter(time.Hour, fmt.Errorf("no bed is free"))))
	stop := c.Start()
	id := c.enqueueJob()
	c.Await("select exists (select from posthorn.job_awaits where job = $1)", id)
	c.publishKeyed("patient-7")
	check("at first")
	c.Await("select retry_count = 1 from posthorn.jobs where id = $1", id)
	stop()

	other := c.process(t, c.URL, posthorn.SealConfig{Keepers: seal.Keepers{"": c.keeper}})
	other.Work(nil, posthorn.WorkConfig{}, handler(nil))
	other.Start()
	c.Exec("select posthorn.reset_job($1)", id)
	check("in another process")
	other.job(id, "COMPLETED")
	stored := testworld.Ask[string](c.world, "select result->>'payload' from posthorn.saved_steps where job = $1", id)
	if !seal.IsSealed([]byte(stored)) {
		t.Errorf("the step has the payload %s", stored)
	}
	if shown := testworld.Ask[string](c.world, "select string_agg(s::text, '') from posthorn.job_steps($1) s", id); strings.Contains(shown, "posthorn_sealed") {
		t.Errorf("the steps show %s", shown)
	}
}

// A worker without keepers gives the job back, which costs no attempt, to one that has them.
func TestJobWaitsForKeepersOfItsEvent(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	stranger := c.stranger()
	id := c.enqueueJob()
	c.publishKeyed("patient-7")
	opened := make(chan posthorn.Event, 1)
	handler := func(ctx context.Context, job posthorn.Job) error {
		e, err := job.Await(ctx, "diagnosis", "diagnosed", "patient-7", time.Hour)
		if err == nil {
			opened <- e
		}
		return err
	}
	stranger.Work(nil, posthorn.WorkConfig{}, handler)
	stop := stranger.Start()
	c.Await("select exists (select from posthorn.job_log where event_id = $1 and action = 'SNOOZED')", id)
	stop()
	c.Work(nil, posthorn.WorkConfig{}, handler)
	c.Start()
	c.TurnClock(time.Hour)
	if e := <-opened; !strings.Contains(string(e.Payload), marker) {
		t.Errorf("it got %s", e.Payload)
	}
	if job := c.job(id, "COMPLETED"); job.RetryCount != 0 {
		t.Errorf("%d failures", job.RetryCount)
	}
}

// A job fails for good when the key of its event was destroyed, and says why.
func TestJobWhoseEventWasShreddedFails(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	id := c.enqueueJob()
	c.publishKeyed("patient-7")
	c.Exec("select posthorn.shred_stream_keys('default', 'patients')")
	fresh := c.process(t, c.URL, posthorn.SealConfig{Keepers: seal.Keepers{"": c.keeper}})
	fresh.Work(nil, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		_, err := job.Await(ctx, "diagnosis", "diagnosed", "patient-7", time.Hour)
		return err
	})
	fresh.Start()
	if job := c.job(id, "FAILED"); !strings.Contains(job.ErrorMessage, "does not exist or was destroyed") || job.Attempt != 1 {
		t.Errorf("attempt %d failed with %s", job.Attempt, job.ErrorMessage)
	}
}

// A handler may seal the result of a step itself, as docs/sealing.md says: later attempts open it.
func TestHandlerSealsItsStep(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	patients := seal.Stream{Namespace: "default", Name: "patients"}
	opened := make(chan string, 10)
	c.Work(nil, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		sealed, err := posthorn.Step(ctx, job, "diagnose", func(ctx context.Context) (json.RawMessage, error) {
			return c.Sealer().Seal(ctx, patients, []byte(`"`+marker+`"`))
		})
		if err != nil {
			return err
		}
		plain, err := c.Sealer().Open(ctx, patients, sealed)
		if opened <- string(plain); job.Attempt == 1 && err == nil {
			return fmt.Errorf("no bed is free")
		}
		return err
	})
	c.Start()
	id := c.enqueueJob()
	c.job(id, "COMPLETED")
	for range 2 {
		if plain := <-opened; plain != `"`+marker+`"` {
			t.Errorf("opened %s", plain)
		}
	}
	if stored := testworld.Ask[string](c.world, "select result::text from posthorn.saved_steps where job = $1", id); !seal.IsSealed([]byte(stored)) {
		t.Errorf("the step is stored as %s", stored)
	}
}
