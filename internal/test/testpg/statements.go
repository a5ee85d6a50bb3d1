package testpg

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net/url"
	"regexp"
	"sync"
	"testing"
)

// Statements counts the statements that programs execute through a proxy of their own. It reads
// the protocol, so it counts those of every program and language, and each execution once.
type Statements struct {
	proxy *Proxy

	mu     sync.Mutex
	counts map[string]int
}

// CountStatements runs a proxy in front of a database that counts statements.
func CountStatements(t testing.TB, database string) *Statements {
	t.Helper()
	s := &Statements{proxy: NewProxy(t, database), counts: map[string]int{}}
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	s.proxy.statements = s
	return s
}

// URL returns the database's URL with the proxy as the only host.
func (s *Statements) URL(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(s.proxy.database)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = s.proxy.Address()
	query := u.Query()
	query.Del("host") // of a socket
	query.Del("port")
	u.RawQuery = query.Encode()
	return u.String()
}

// Counts returns how often each statement was executed: by the name of the function of Posthorn
// that it calls first, or else by its text.
func (s *Statements) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

var calledFunction = regexp.MustCompile(`posthorn\.(\w+)\s*\(`)

func (s *Statements) count(sql string) {
	if name := calledFunction.FindStringSubmatch(sql); name != nil {
		sql = name[1]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[sql]++
}

// frontend reads what a client sends on one connection.
type frontend struct {
	statements *Statements
	unread     []byte
	started    bool              // the messages of the start are over: those have no type
	prepared   map[string]string // texts by the names of prepared statements
	portals    map[string]string // texts by the names of portals
}

func (s *Statements) frontend() *frontend {
	return &frontend{statements: s, prepared: map[string]string{}, portals: map[string]string{}}
}

// The codes of the messages with which a client asks for encryption before it starts.
const (
	askForTLS    = 80877103
	askForGSSAPI = 80877104
)

func (f *frontend) Write(b []byte) (int, error) {
	f.unread = append(f.unread, b...)
	for {
		typed := 0
		if f.started {
			typed = 1
		}
		if len(f.unread) < typed+4 {
			return len(b), nil
		}
		end := typed + int(binary.BigEndian.Uint32(f.unread[typed:]))
		if len(f.unread) < end {
			return len(b), nil
		}
		message := f.unread[:end]
		f.unread = f.unread[end:]
		if f.started {
			f.read(message[0], message[5:])
		} else {
			code := binary.BigEndian.Uint32(message[4:])
			f.started = code != askForTLS && code != askForGSSAPI
		}
	}
}

// read reads a message of a type: a simple query, or the parts of an extended one.
func (f *frontend) read(of byte, body []byte) {
	text := func() string {
		found, rest, _ := bytes.Cut(body, []byte{0})
		body = rest
		return string(found)
	}
	switch of {
	case 'Q':
		f.statements.count(text())
	case 'P':
		name := text()
		f.prepared[name] = text()
	case 'B':
		portal := text()
		f.portals[portal] = f.prepared[text()]
	case 'E':
		f.statements.count(f.portals[text()])
	}
}
