package judge

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

func publishInTransaction(j *judgement) {
	p := j.start()
	p.send(publish(1, "outside"))
	var committed []int64
	for _, ending := range []string{"rollback", "commit"} {
		c, e := publish(2, ending), enqueue()
		c.Ending, e.Ending = ending, ending
		committed = slices.Concat(p.send(c), p.send(e))
	}
	testworld.Equal(j.T, "keys of events", testworld.Column[string](j, "select key from posthorn.events order by id"), []string{"outside", "commit", "commit"})
	testworld.Equal(j.T, "jobs", testworld.Column[int64](j, "select id from posthorn.jobs"), committed[2:])
	testworld.Equal(j.T, "effects beside them", testworld.Column[int64](j, "select id from effects order by n"), committed)
}

func atLeastOnce(j *judgement) {
	p := j.start(handler("g", false, do("hold", "effect")...), run)
	ids := p.send(publish(50, "k"))
	p.await(4, "hold", 0)
	p.Kill()
	j.start(handler("g", false, action{Do: "error", Times: 1, OneIn: 5}, action{Do: "effect"}), run)
	j.awaitEffects("g", len(ids))
}

func exactlyOnce(j *judgement) {
	p := j.start()
	ids := p.send(publish(200, "k"))
	for range await.Kills(3) {
		p := j.start(handler("g", true, action{Do: "effect"}, action{Do: "hold", OneIn: 10}), run)
		p.await(1, "hold", 0)
		p.Kill()
	}
	p = j.start(handler("g", true, do("effect")...), run)
	j.awaitEffects("g", len(ids))
	p.drain()
	testworld.Equal(j.T, "effects", slices.Sorted(slices.Values(j.effects("g"))), ids)
}

func order(j *judgement) {
	g := handler("g", true, action{Do: "linger", MS: 20}, action{Do: "error", OneIn: 20}, action{Do: "effect"})
	g.Order = "key"
	keys := []string{"a", "b", "c"}
	publisher, rounds := j.start(), 0
	p, other := j.start(g, run), j.start(g, run)
	for _, first := range []*process{p, other} {
		await.True(j.T, "the process handles events", func() bool {
			for _, key := range keys {
				publisher.send(publish(1, key))
			}
			rounds++
			return len(first.heard("begin", 0)) >= 5
		})
		first.Kill()
		j.start(g, run)
	}
	j.awaitEffects("g", rounds*len(keys))
	for _, key := range keys {
		ids := testworld.Column[int64](j, "select id from effects where key = $1 order by n", key)
		if len(ids) != rounds || !slices.IsSorted(ids) {
			j.T.Errorf("events of key %s were handled in the order %v", key, ids)
		}
	}
}

// The lease cannot end before the process is killed, while heartbeats may record a part of it.
func givenBack(j *judgement) {
	j.Exec(`
		create sequence public.refusals;
		grant usage on sequence public.refusals to public;
		create function public.refuse() returns trigger language plpgsql as $$
		begin
			perform nextval('public.refusals');
			raise exception 'the server is shutting down' using errcode = '57P01';
		end $$;
		create trigger refuse before delete on posthorn.leases for each row execute function public.refuse()`)
	g := handler("g", true, times(1, "error"), action{Do: "effect"})
	g.Order = "key"
	p := j.start(g)
	ids := p.send(publish(3, "k"))
	p.do(run)
	j.Await("select last_value >= 3 from public.refusals")
	p.Kill()
	j.Exec("drop trigger refuse on posthorn.leases")
	g.Actions = do("effect")
	p = j.start(g, run)
	j.awaitEffects("g", len(ids))
	j.Await("select not exists (select from posthorn.retries) and not exists (select from posthorn.leases)")
	p.drain()
	testworld.Equal(j.T, "effects", j.effects("g"), ids)
}

func retry(j *judgement) {
	p := j.start(handler("g", true, action{Do: "effect"}, action{Do: "retry", MS: 3600_000, Times: 1}, times(2, "error")).patient(), run)
	id := p.send(publish(1, "k"))[0]
	p.await(1, "end", id)
	j.Await("select exists (select from posthorn.retries where due_at > posthorn.now() + interval '50 minutes')")
	j.TurnClock(2 * time.Hour)
	p.await(3, "end", id)
	p.drain()
	var attempts []int
	for _, r := range p.heard("begin", id) {
		attempts = append(attempts, r.Attempt)
	}
	testworld.Equal(j.T, "attempts", attempts, []int{1, 2, 3})
	testworld.Equal(j.T, "effects", j.effects("g"), []int64{id})
}

func permanentFailure(j *judgement) {
	p := j.start(handler("g", true, do("effect", "permanent")...).patient(), run)
	id := p.send(publish(1, "k"))[0]
	j.Await("select exists (select from posthorn.dead_letters)")
	p.drain()
	testworld.Equal(j.T, "calls", len(p.heard("begin", id)), 1)
	testworld.Equal(j.T, "attempts", testworld.Ask[int](j, "select attempts from posthorn.dead_letters"), 1)
	if text := testworld.Ask[string](j, "select error from posthorn.dead_letters"); !strings.Contains(text, "told to fail for good") {
		j.T.Errorf("the dead letter has the error %q", text)
	}
	testworld.Equal(j.T, "effects", len(j.effects("g")), 0)
}

func snooze(j *judgement) {
	g := handler("g", true, action{Do: "snooze", MS: 1, Times: 3}, action{Do: "effect"})
	g.Attempts = 1
	p := j.start(g.patient(), worker(action{Do: "snooze", MS: 1, Times: 3}, action{Do: "effect"}).patient(), run)
	event, job := p.send(publish(1, "k"))[0], p.send(enqueue())[0]
	p.await(4, "end", event)
	j.awaitJob(job, "COMPLETED")
	p.drain()
	testworld.Equal(j.T, "effects", j.effects("g"), []int64{event})
	testworld.Equal(j.T, "failures of the job", testworld.Ask[int](j, "select retry_count from posthorn.jobs"), 0)
}

// A second process asks for work after the time of the first one's lease. It gets later events and
// jobs only.
func longHandler(j *judgement) {
	g, w := handler("g", true, do("effect", "hold")...), worker(do("begin", "effect", "hold", "complete", "commit")...)
	g.Concurrency, w.Concurrency = 1, 1
	p := j.start(g, w, run)
	event, job := p.send(publish(1, "k"))[0], p.send(enqueue())[0]
	p.await(1, "hold", event)
	p.await(1, "hold", job)
	j.awaitPassing("select until from posthorn.leases order by id limit 1")
	j.awaitPassing("select lease_until from posthorn.jobs where id = $1", job)
	g.Actions, w.Actions = do("effect"), do("begin", "effect", "complete", "commit")
	other := j.start(g, w, run)
	for _, next := range []command{publish(1, "k"), enqueue()} {
		await.True(j.T, "the other process takes what comes later", func() bool {
			id := other.send(next)[0]
			await.Pause()
			return len(other.heard("begin", id)) > 0
		})
	}
	testworld.Equal(j.T, "calls in the other process", len(other.heard("begin", event))+len(other.heard("begin", job)), 0)
	p.drainHeld()
	testworld.Equal(j.T, "effects", testworld.Ask[int](j, "select count(*) from effects where id = $1 and handler = 'g'", event), 1)
	testworld.Equal(j.T, "effects of the job", testworld.Ask[int](j, "select count(*) from effects where id = $1 and handler = 't'", job), 1)
	testworld.Equal(j.T, "attempts at the job", testworld.Ask[int](j, "select attempt from posthorn.jobs where id = $1", job), 1)
}

// awaitPassing waits until the database's clock has passed the time that a query returns now.
func (j *judgement) awaitPassing(query string, args ...any) {
	j.T.Helper()
	until := testworld.Ask[time.Time](j, query, args...)
	j.Await("select posthorn.now() > $1", until)
}

// A stopped process has written its effect when its lease passes, and goes on after another one
// has handled the event.
func stoppedProcess(j *judgement) {
	g := handler("g", true, do("effect", "hold")...)
	w := worker(do("begin", "effect", "hold", "complete", "commit")...)
	p := j.start(g, w, run)
	event, job := p.send(publish(1, "k"))[0], p.send(enqueue())[0]
	p.await(1, "hold", event)
	p.await(1, "hold", job)
	p.signal(syscall.SIGSTOP)
	g.Actions, w.Actions = do("effect"), do("begin", "effect", "complete", "commit")
	other := j.start(g, w, run)
	other.await(1, "end", event)
	j.awaitEffects("g", 1)
	j.awaitJob(job, "COMPLETED")
	p.signal(syscall.SIGCONT)
	p.do(command{Do: "go"})
	p.drain()
	testworld.Equal(j.T, "effects", j.effects("g"), []int64{event})
	testworld.Equal(j.T, "effects of the job", j.effects("t"), []int64{job})
}

// The lease is so long that only what is given back comes to the other process.
func drain(j *judgement) {
	g, w := handler("g", true, do("effect", "hold")...), worker(do("begin", "effect", "hold", "complete", "commit")...)
	for _, c := range []*command{&g, &w} {
		*c = c.patient()
		c.Concurrency = 1
	}
	p := j.start()
	events, jobs := p.send(publish(20, "k")), []int64{}
	for range 20 {
		jobs = append(jobs, p.send(enqueue())...)
	}
	p.do(g)
	p.do(w)
	p.do(run)
	p.await(2, "hold", 0)
	p.drainHeld()
	for _, r := range p.heard("begin", 0) {
		if id, _ := strconv.ParseInt(r.ID, 10, 64); !slices.Contains(j.effects(r.Handler), id) {
			j.T.Errorf("%s of %s had begun, and has no effect", r.ID, r.Handler)
		}
	}
	g.Actions, w.Actions = do("effect"), do("begin", "effect", "complete", "commit")
	other := j.start(g, w, run)
	j.awaitEffects("g", len(events))
	j.awaitEffects("t", len(jobs))
	other.drain()
	testworld.Equal(j.T, "effects", len(j.effects("g"))+len(j.effects("t")), 40)
}

func largeNumbers(j *judgement) {
	const large = 1<<53 + 1
	j.Exec("select setval('posthorn.event_id', $1, false), setval('posthorn.job_id', $1, false)", int64(large))
	p := j.start(handler("g", true, do("effect")...), worker(action{Do: "step_tx", Name: "s"}, action{Do: "result"}), run)
	payload := `{"m": 9007199254740993, "n": 12345678901234567890.123456789}`
	e, w := publish(1, "k"), enqueue()
	e.Messages[0].Payload, w.Messages[0].Payload = payload, payload
	testworld.Equal(j.T, "ids", slices.Concat(p.send(e), p.send(w)), []int64{large, large})
	j.awaitEffects("g", 1)
	j.awaitJob(large, "COMPLETED")
	p.await(2, "begin", large)
	for _, r := range p.heard("begin", large) {
		testworld.Equal(j.T, "payload for "+r.Handler, r.Payload, payload)
	}
	testworld.Equal(j.T, "ids of effects", testworld.Column[int64](j, "select id from effects"), []int64{large, large})
}

func traceContext(j *judgement) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	p := j.client.launch(j.T, true)
	for _, c := range []command{{Do: "open", Database: j.URL, Traced: true}, handler("g", true), worker(), run} {
		p.do(c)
	}
	for _, c := range []command{publish(1, "k"), enqueue()} {
		c.Traceparent = "00-" + id + "-b7ad6b7169203331-01"
		sent := p.send(c)[0]
		if r := p.await(1, "begin", sent); r.Trace != id || !strings.Contains(r.Metadata, id) {
			j.T.Errorf("the handler %s is called in trace %q, with metadata %s", r.Handler, r.Trace, r.Metadata)
		}
	}
}
