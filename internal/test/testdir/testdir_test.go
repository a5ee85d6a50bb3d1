package testdir

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/localpg"
)

// role is an environment variable that makes the test binary a process that owns
// servers, or one of these servers.
const role = "TESTDIR_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "owner":
		err = beOwner()
	case "server":
		err = beServer()
	}
	fmt.Println("error:", err)
	os.Exit(1)
}

// beOwner starts a Postgres and an attached server, and prints their addresses.
func beOwner() error {
	d, err := Make("testdir-")
	if err != nil {
		return err
	}
	postgres, err := localpg.Start(context.Background(), localpg.Config{
		Dir: d.Path, BinDir: os.Getenv("POSTHORN_TEST_PG_BIN"), Logger: slog.New(slog.DiscardHandler),
		Settings: map[string]string{"fsync": "off", "shared_buffers": "32MB", "dynamic_shared_memory_type": "mmap"},
	})
	if err != nil {
		return err
	}
	cmd := as("server")
	d.Attach(cmd)
	line, err := firstLine(cmd)
	if err != nil {
		return err
	}
	fmt.Println(d.Path, line, fmt.Sprintf("127.0.0.1:%d", postgres.Port()))
	<-postgres.Done()
	return postgres.Err()
}

func beServer() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
}

func as(what string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), role+"="+what)
	return cmd
}

// firstLine starts a process and returns the first line that it prints.
func firstLine(cmd *exec.Cmd) (string, error) {
	output, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	return strings.TrimSpace(line), err
}

func TestServersEndWithTheirProcess(t *testing.T) {
	t.Parallel()
	cmd := as("owner")
	said, err := firstLine(cmd)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var dir, attached, postgres string
	if _, scanErr := fmt.Sscan(said, &dir, &attached, &postgres); scanErr != nil {
		t.Fatalf("the owner printed %q, %v", said, err)
	}
	for _, address := range []string{attached, postgres} {
		if !answers(address) {
			t.Fatalf("%s does not run", address)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the directory goes", func() bool { return gone(dir) })
	if answers(postgres) { // Remove waits for it; without its files it would end later
		t.Error("Postgres still runs")
	}
	await.True(t, "the attached server ends", func() bool { return !answers(attached) })
}

func TestServersEndWithTheirTest(t *testing.T) {
	t.Parallel()
	var dir, attached string
	t.Run("test", func(t *testing.T) {
		d := New(t, "testdir-")
		cmd := as("server")
		d.Attach(cmd)
		var err error
		if attached, err = firstLine(cmd); err != nil {
			t.Fatal(err)
		}
		dir = d.Path
	})
	if !gone(dir) {
		t.Errorf("%s still exists", dir)
	}
	await.True(t, "the attached server ends", func() bool { return !answers(attached) })
}

func answers(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

func gone(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func TestNewIsOpenToOtherUsers(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(New(t, "testdir-").Path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o755 {
		t.Errorf("mode %o, want 755", got)
	}
}
