package pg

import (
	"encoding/binary"
	"io"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// A server with synchronous standbys answers a commit when a standby has it. When that wait is
// cancelled, by an administrator for example, the server reports success with a warning: the
// transaction is committed and visible, and a failover may lose it. Nobody reads warnings, so
// our connections turn this one into an error of the statement.

// waitFunction is the function of Postgres that gives the warning. Its text depends on the
// language of the server.
const waitFunction = "SyncRepWaitForLSN"

const unconfirmedCode = "PH007"

// unconfirmed is the error, as a server would send it.
var unconfirmed, _ = (&pgproto3.ErrorResponse{ // it is short enough to be encoded
	Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: unconfirmedCode,
	Message: "the transaction is committed, but the server's wait for its synchronous standby was cancelled: a failover may lose it",
	Hint:    "look whether it is still there before you repeat it, or publish with a dedup key, with which repeating is safe",
}).Encode(nil)

// reportUnconfirmed makes the connections of a configuration return [ErrUnconfirmed].
func reportUnconfirmed(config *pgconn.Config) {
	build := config.BuildFrontend
	config.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return build(&confirmingReader{from: r}, w)
	}
}

// confirmingReader reads the messages of a server. Where a wait for a standby was cancelled, it
// adds the error before the end of the transaction's results, which is where the server reports
// errors of an implicit commit. So results of other statements stay where they belong.
type confirmingReader struct {
	from io.Reader
	held []byte // comes next

	head    [5]byte // the type and the length of a message
	got     int     // bytes of head that have come
	rest    int     // bytes of the message that have not come
	notice  []byte  // the part of a notice that has come; nil in other messages
	pending bool    // a wait was cancelled, and its error not added yet
}

func (r *confirmingReader) Read(b []byte) (int, error) {
	if len(r.held) == 0 {
		n, err := r.from.Read(b)
		all := r.add(b[:n])
		if len(all) == n { // nothing was added
			return n, err
		}
		r.held = all // an error of the connection comes again with the next read
	}
	n := copy(b, r.held)
	r.held = r.held[n:]
	return n, nil
}

const noticeMessage, readyMessage = 'N', 'Z'

// add returns the data with the errors that belong into it. It is b itself if there are none.
func (r *confirmingReader) add(b []byte) []byte {
	var added []byte
	from := 0
	for i := 0; i < len(b); {
		if r.rest > 0 {
			n := min(r.rest, len(b)-i)
			if r.notice != nil {
				r.notice = append(r.notice, b[i:i+n]...)
			}
			i, r.rest = i+n, r.rest-n
		} else {
			if r.got == 0 && b[i] == readyMessage && r.pending {
				added = append(append(added, b[from:i]...), unconfirmed...)
				from, r.pending = i, false
			}
			n := copy(r.head[r.got:], b[i:])
			i, r.got = i+n, r.got+n
			if r.got < len(r.head) {
				break
			}
			r.got, r.rest = 0, int(binary.BigEndian.Uint32(r.head[1:]))-4
			if r.head[0] == noticeMessage {
				r.notice = []byte{}
			}
		}
		if r.rest == 0 && r.notice != nil {
			r.pending = r.pending || isCancelledWait(r.notice)
			r.notice = nil
		}
	}
	if added == nil {
		return b
	}
	return append(added, b[from:]...)
}

func isUnconfirmed(err error) bool { return sqlState(err) == unconfirmedCode }

// claimError returns the error of a claim. One that no standby confirms is as good as any other:
// a failover may forget every claim, since none waits for its own sake, and then the events or
// jobs are handed out again. A claim waits if it notes a failover, for example.
func claimError(err error) error {
	if isUnconfirmed(err) {
		return nil
	}
	return err
}

func isCancelledWait(notice []byte) bool {
	var n pgproto3.NoticeResponse
	return n.Decode(notice) == nil && n.Routine == waitFunction
}
