package posthorn_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testguide"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/posthorntest"
)

// After all tests, no goroutine and no connection may be left. The pause after an error
// of the database is short.
func TestMain(m *testing.M) {
	worker.TroubleWait = 20 * time.Millisecond
	posthorntest.Main(m)
}

// world is a database with an open client.
type world struct{ *testworld.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{testworld.New(t)}
}

// exampleTB is the testing.TB of examples.
type exampleTB struct {
	testing.TB
	ctx      context.Context
	cleanups []func()
}

func (e *exampleTB) Name() string                 { return "Example" }
func (e *exampleTB) Helper()                      {}
func (e *exampleTB) Cleanup(f func())             { e.cleanups = append(e.cleanups, f) }
func (e *exampleTB) Context() context.Context     { return e.ctx }
func (e *exampleTB) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (e *exampleTB) Error(args ...any)            { panic(fmt.Sprint(args...)) }
func (e *exampleTB) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (e *exampleTB) Errorf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (e *exampleTB) Logf(string, ...any)          {}
func (e *exampleTB) Log(...any)                   {}

// forExample opens two clients on a new database: one for a user with the rights that a
// guide names for its examples, and one with all rights, for the rest of a test.
func forExample(guide string) (c, owner *posthorn.Client, ctx context.Context, end func()) {
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	tb := &exampleTB{ctx: ctx}
	database := posthorntest.Database(tb)
	user := testguide.NewUser(tb, database)
	c = testworld.OpenClient(tb, posthorn.Config{DatabaseURL: user.With(testguide.Examples(tb, "docs/"+guide)[0].Needs)})
	owner = testworld.OpenClient(tb, posthorn.Config{DatabaseURL: database})
	return c, owner, ctx, func() {
		for _, cleanup := range slices.Backward(tb.cleanups) {
			cleanup()
		}
		cancel()
	}
}
