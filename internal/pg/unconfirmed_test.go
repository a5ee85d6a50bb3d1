package pg

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"

	"github.com/jackc/pgx/v5/pgproto3"
)

// The error comes at the end of the transaction whose wait was cancelled, however the server's
// data are divided, and not after other notices.
func TestErrorOfACancelledWait(t *testing.T) {
	t.Parallel()
	encode := func(messages ...pgproto3.BackendMessage) []byte {
		var b []byte
		for _, m := range messages {
			var err error
			if b, err = m.Encode(b); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	cancelled := &pgproto3.NoticeResponse{Severity: "WARNUNG", Code: "01000", Routine: waitFunction}
	other := &pgproto3.NoticeResponse{Severity: "NOTICE", Code: "PH000", Message: waitFunction, Routine: "exec_stmt_raise"}
	row := &pgproto3.DataRow{Values: [][]byte{[]byte("Z\x00\x00\x00\x05N")}}
	done := &pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}
	ready := &pgproto3.ReadyForQuery{TxStatus: 'I'}
	sent := encode(other, row, done, ready, row, cancelled, done, done, ready, cancelled, ready, done, ready)
	want := bytes.Join([][]byte{
		encode(other, row, done, ready, row, cancelled, done, done), unconfirmed, encode(ready, cancelled), unconfirmed, encode(ready, done, ready),
	}, nil)
	for name, from := range map[string]io.Reader{
		"at once": bytes.NewReader(sent), "by bytes": iotest.OneByteReader(bytes.NewReader(sent)), "by halves": iotest.HalfReader(bytes.NewReader(sent)),
	} {
		if got, err := io.ReadAll(&confirmingReader{from: from}); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
