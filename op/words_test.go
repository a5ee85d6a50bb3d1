package op

import "testing"

func TestCounted(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		Counted(1, "job"): "1 job", Counted(0, "job"): "0 jobs", Counted(int64(2), "retry"): "2 retries", Counted(3, "key"): "3 keys",
		Were(1, "event"): "1 event was", Were(2, "event"): "2 events were", Are(1, "token"): "1 token is", Are(0, "token"): "0 tokens are",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
