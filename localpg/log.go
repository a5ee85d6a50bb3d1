package localpg

import (
	"bytes"
	"os"
	"strings"
)

const maxLogSize = 16 << 20

// openLog opens the server's log for appending. A large log is renamed first, and
// replaces the one renamed before, so at most two files are kept.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogSize {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// logSince returns the last lines that the server has logged since the file had the
// given size.
func logSince(path string, size int64) string {
	content, err := os.ReadFile(path)
	if err != nil || int64(len(content)) < size {
		return ""
	}
	return lastLines(content[size:])
}

// lastLines joins the last few lines into one, for an error message.
func lastLines(text []byte) string {
	const keep = 8
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	lines = lines[max(0, len(lines)-keep):]
	return strings.TrimSpace(string(bytes.Join(lines, []byte(" | "))))
}
