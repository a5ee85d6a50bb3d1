package await_test

import (
	"testing"

	"github.com/posthorn/posthorn/internal/await"
)

func TestTrueLooksUntilTheConditionHolds(t *testing.T) {
	t.Parallel()
	looks := 0
	await.True(t, "the third look", func() bool { looks++; return looks == 3 })
	if looks != 3 {
		t.Errorf("%d looks, want 3", looks)
	}
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
