package await_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
)

func TestTrueChecksUntilTheConditionHolds(t *testing.T) {
	t.Parallel()
	checks := 0
	await.True(t, "the third check", func() bool { checks++; return checks == 3 })
	if checks != 3 {
		t.Errorf("%d checks, want 3", checks)
	}
}

// Checks become rarer as the test waits, but come soon after the condition holds.
func TestLongWaitsCheckRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for after, most := range map[time.Duration]int{10 * time.Millisecond: 5, time.Second: 80, time.Minute: 3100} {
			began, checks := time.Now(), 0
			await.True(t, "enough time", func() bool { checks++; return time.Since(began) >= after })
			if late := time.Since(began) - after; late > after/5 || late > 20*time.Millisecond {
				t.Errorf("the end of %v was seen %v late", after, late)
			}
			if checks > most+1 {
				t.Errorf("%d checks in %v", checks, after)
			}
		}
	})
}

func TestValueAndClosed(t *testing.T) {
	t.Parallel()
	values := make(chan int)
	go func() {
		defer close(values)
		for i := range 3 {
			values <- i
		}
	}()
	if got := await.Value(t, "the first number", values); got != 0 {
		t.Errorf("got %d, want 0", got)
	}
	await.Closed(t, "all numbers", values)
}

func TestPassIsForFakeTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		await.Pass(time.Hour)
		if passed := time.Since(began); passed != time.Hour {
			t.Errorf("%v has passed, want an hour", passed)
		}
	})
	defer func() {
		if recover() == nil {
			t.Error("a test may wait for real time")
		}
	}()
	await.Pass(time.Nanosecond)
}
