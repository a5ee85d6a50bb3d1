package posthorn_test

import (
	"log"
	"time"

	"github.com/posthorn/posthorn"
)

func ExampleClient_Schedule() {
	_, err := ph.Schedule(ctx, ph.Pool(), posthorn.Schedule{
		Name:     "invoices",
		Cron:     "0 8 1 * *",
		TimeZone: "Europe/Berlin",
		Type:     "invoices.due",
		Payload:  map[string]string{"kind": "monthly"},
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Schedule_everyAndAt() {
	for _, s := range []posthorn.Schedule{
		{Name: "poll", Every: 30 * time.Second, Type: "poll.due", CatchUp: posthorn.CatchUpSkip},
		{Name: "launch", At: time.Date(2030, time.May, 1, 9, 0, 0, 0, time.UTC), Type: "launch"},
	} {
		if _, err := ph.Schedule(ctx, ph.Pool(), s); err != nil {
			log.Fatal(err)
		}
	}
}

func ExampleClient_Schedules() {
	schedules, err := ph.Schedules(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range schedules {
		log.Println(s.Name, s.State, s.NextRunAt, s.LastError)
	}
}
