package testnats

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/posthorn/posthorn/internal/testdir"
)

// accounts is how many accounts a shared server has. When all are taken, another
// server is started.
const accounts = 100

// shared is the server that the tests of this process share. It ends with the
// process.
var shared struct {
	sync.Mutex
	server *Server
	taken  int
}

// NewAccount returns a server with an empty JetStream: an account of the server
// that all tests of the process share. The test neither kills nor stops it.
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
