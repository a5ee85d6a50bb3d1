package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn/internal/test/await"
)

// fakeProc is a directory like /proc.
type fakeProc struct {
	t   *testing.T
	dir string
}

// has writes the state of a process. Times are in hundredths of a second.
func (f fakeProc) has(pid, parent, used, waited int, command string) {
	f.t.Helper()
	dir := filepath.Join(f.dir, fmt.Sprint(pid))
	name := "program (x"
	if strings.Contains(command, "postgres") {
		name = "postgres"
	}
	stat := fmt.Sprintf("%d (%s) S %d 0 0 0 -1 0 0 0 0 0 %d 0 %d 0 20 0 1 0 %d 0 0", pid, name, parent, used, waited, 1000+pid)
	err := os.MkdirAll(dir, 0o755)
	for name, content := range map[string]string{"stat": stat, "cmdline": strings.ReplaceAll(command, " ", "\x00")} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644)
		}
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f fakeProc) lacks(pid int) {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.dir, fmt.Sprint(pid))); err != nil {
		f.t.Fatal(err)
	}
}

// A run has one unit with two tests: TestOne has a database on the shared server, TestTwo a
// server of its own and a child.
func TestCosts(t *testing.T) {
	t.Parallel()
	proc := fakeProc{t, t.TempDir()}
	w := &watcher{root: 1, alive: map[int]*process{}, strangers: map[int]bool{}}
	r := &unitRun{unit: "unit", program: "/tmp/unit.test", pid: 30, notes: filepath.Join(t.TempDir(), "notes"), profile: "/tmp/p"}
	notes := "database\tposthorn_test_0123abcd_1\tTestOne\ndirectory\t/tmp/own-1\tTestTwo\nprocess\t50\tTestTwo\n"
	if err := os.WriteFile(r.notes, []byte(notes), 0o644); err != nil {
		t.Fatal(err)
	}
	const session = "postgres: posthorn posthorn_test_0123abcd_1 127.0.0.1(5000) "
	proc.has(7, 0, 99900, 0, "stranger")
	proc.has(10, 1, 100, 0, "/usr/bin/postgres -D /tmp/shared")
	proc.has(11, 10, 200, 0, session+"idle")
	proc.has(12, 10, 300, 0, "postgres: posthorn posthorn 127.0.0.1(5001) idle")
	proc.has(13, 10, 10, 0, "postgres: checkpointer ")
	proc.has(20, 1, 400, 0, "go test -c")
	proc.has(30, 1, 0, 0, "go tool test2json /tmp/unit.test -test.cpuprofile=/tmp/p")
	proc.has(31, 30, 500, 0, "/tmp/unit.test -test.cpuprofile=/tmp/p")
	proc.has(40, 31, 0, 0, "/usr/bin/postgres -D /tmp/own-1")
	proc.has(41, 40, 600, 0, "postgres: posthorn posthorn 127.0.0.1(5002) idle")
	proc.has(50, 31, 700, 0, "/tmp/unit.test -test.run=TestChild")
	w.look(proc.dir)
	proc.has(11, 10, 250, 0, session+"idle")
	w.look(proc.dir)
	proc.lacks(11)
	proc.has(10, 1, 100, 290, "/usr/bin/postgres -D /tmp/shared") // the session used more after the last look
	w.look(proc.dir)

	b := (&costs{watching: w, runs: []*unitRun{r}}).sum()
	got := map[string]string{}
	for _, costs := range []map[string]*cost{b.tests, b.packages} {
		for name, c := range costs {
			got[name] = fmt.Sprintf("%v %v %v", c.own, c.sessions, c.programs)
		}
	}
	for purpose, took := range b.servers {
		got[purpose] = took.String()
	}
	got["others"] = b.others.String()
	want := map[string]string{
		"TestOne of unit": "0s 2.5s 0s", "TestTwo of unit": "0s 6s 7s", "unit": "5s 8.5s 7s",
		"postmaster": "1s", "sessions of database posthorn": "3s", "checkpointer": "100ms",
		"sessions that ended before they were seen": "400ms", "others": "4s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("processor time (-want +got):\n%s", diff)
	}
}

// No time counts twice: neither that of a process that ends together with its parent, after
// which the grandparent has waited for both, nor that of one whose parent has ended before it.
func TestTimeCountsOnce(t *testing.T) {
	t.Parallel()
	proc := fakeProc{t, t.TempDir()}
	w := &watcher{root: 1, alive: map[int]*process{}, strangers: map[int]bool{}}
	proc.has(10, 1, 100, 0, "go tool test2json")
	proc.has(11, 10, 200, 0, "test2json")
	proc.has(12, 11, 3000, 0, "unit.test")
	proc.has(13, 11, 400, 0, "starter")
	proc.has(14, 13, 50, 0, "daemon")
	w.look(proc.dir)
	proc.lacks(13)
	proc.has(11, 10, 200, 400, "test2json")
	proc.has(14, 7, 5000, 0, "daemon")
	w.look(proc.dir)
	proc.lacks(14)
	w.look(proc.dir)
	proc.lacks(11)
	proc.lacks(12)
	proc.has(10, 1, 100, 3600, "go tool test2json")
	w.look(proc.dir)

	var seen time.Duration
	for _, p := range w.processes() {
		seen += p.used + p.unseen()
	}
	if want := 8700 * tick; seen != want {
		t.Errorf("%v are seen, want %v", seen, want)
	}
	if total := w.total(); total < seen { // and the time of other children of this process
		t.Errorf("%v together are less than the %v that are seen", total, seen)
	}
}

// A process that ends between the last look and the end of watching is not alive in the sum:
// the kernel's total has its time.
func TestLastLook(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("there is no /proc")
	}
	child := exec.Command("cat")
	input, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	w := watch(t.Context(), os.Getpid())
	has := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.alive[child.Process.Pid] != nil
	}
	await.True(t, "the child is seen", has)
	_ = input.Close()
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	if w.stop(); has() {
		t.Error("a process that has ended counts as alive")
	}
}

// message writes a protobuf message of numbers and contents.
func message(fields ...any) []byte {
	var text []byte
	for i := 0; i < len(fields); i += 2 {
		field := uint64(fields[i].(int)) << 3
		switch value := fields[i+1].(type) {
		case int:
			text = binary.AppendUvarint(binary.AppendUvarint(text, field), uint64(value))
		case []byte:
			text = append(binary.AppendUvarint(binary.AppendUvarint(text, field|2), uint64(len(value))), value...)
		}
	}
	return text
}

// Samples count for the test of the label, or for the test function on the stack.
func TestProfileByTest(t *testing.T) {
	t.Parallel()
	names := []string{"", "test", "TestLabelled", "p.TestOnStack.func1", "testing.tRunner", "runtime.gcBgMarkWorker"}
	var fields []any
	sample := func(nanoseconds int, location []byte, more ...any) {
		fields = append(fields, 2, message(append([]any{1, location, 2, []byte{1}, 2, nanoseconds}, more...)...))
	}
	sample(1000, []byte{3, 2}, 3, message(1, 1, 2, 2)) // the label goes first
	sample(200, []byte{3, 1, 2})
	sample(30, []byte{3})
	for location, function := range map[int]int{1: 3, 2: 4, 3: 5} {
		fields = append(fields, 4, message(1, location, 4, message(1, 10*location)), 5, message(1, 10*location, 2, function))
	}
	for _, name := range names {
		fields = append(fields, 6, []byte(name))
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = zip.Write(message(fields...))
	_ = zip.Close()
	file := filepath.Join(t.TempDir(), "profile")
	if err := os.WriteFile(file, packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := profileByTest(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Duration{"TestLabelled": 1000, "TestOnStack": 200, "": 30}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("profile (-want +got):\n%s", diff)
	}
	if err := os.WriteFile(file, slices.Repeat([]byte{1}, 100), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := profileByTest(file); err == nil {
		t.Error("a file that is no profile is read")
	}
}

// The report names the parts of a test's time, and their sum.
func TestBill(t *testing.T) {
	t.Parallel()
	one := &cost{name: "TestOne of unit", own: time.Second, sessions: 2 * time.Second, programs: 500 * time.Millisecond}
	b := &bill{
		tests: map[string]*cost{"TestOne of unit": one}, packages: map[string]*cost{"unit": {name: "unit", own: 4 * time.Second}},
		servers: map[string]time.Duration{"checkpointer": time.Second}, others: time.Second, all: 7 * time.Second,
	}
	var text strings.Builder
	b.print(&text)
	for _, want := range []string{
		"      3.5      1.0      2.0      0.5  TestOne of unit\n", "      4.0      4.0      0.0      0.0  unit\n",
		"      1.0  shared Postgres: checkpointer\n", "      1.0  not seen\n", "      7.0  together\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in the report:\n%s", want, text.String())
		}
	}
}
