package testnats

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testdir"
)

// accounts is the number of accounts of a shared server. When all of them are in
// use, NewAccount starts another server.
const accounts = 100

// shared is the server that all tests of this process share. It ends with the
// process.
var shared struct {
	sync.Mutex
	server *Server
	taken  int
}

// NewAccount returns an account of the shared server, with an empty JetStream. The
// test must not kill or stop the server.
func NewAccount(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil || shared.taken == accounts {
		dir, err := testdir.Make("testnats-")
		if err != nil {
			t.Fatal(err)
		}
		settings := []string{"no_auth_user: u0", "accounts {"}
		for i := range accounts {
			settings = append(settings, fmt.Sprintf("a%[1]d { users: [{user: u%[1]d, password: p}], jetstream: enabled }", i))
		}
		shared.server, shared.taken = launch(t, dir, 1, append(settings, "}")).Servers[0], 0
	}
	account := &Server{
		URL: strings.Replace(shared.server.URL, "nats://", fmt.Sprintf("nats://u%d:p@", shared.taken), 1), Name: shared.server.Name, t: t,
	}
	shared.taken++
	return account
}
