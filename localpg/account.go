package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// account is the Unix user that runs the server when this process is root; nil
// stands for the user of this process.
type account struct {
	name     string
	uid, gid uint32
}

func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("postgres does not run as root, and there is no user postgres or nobody to run it as")
}

// command prepares a program that runs as the account, in a process group of its own.
// The environment lacks the variables that would change the behaviour of Postgres.
func (a *account) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = serverEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return cmd
}

// serverEnv is the environment without PG* and locale variables, which initdb and
// postgres obey. LC_ALL=C makes their messages English.
func serverEnv() []string {
	var env []string
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, "PG") || strings.HasPrefix(entry, "LC_") || strings.HasPrefix(entry, "LANG") {
			continue
		}
		env = append(env, entry)
	}
	return append(env, "LC_ALL=C")
}

// own makes the account the owner of a path.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// checkEnter returns an error if the account may not enter dir. It runs a program in
// dir, so that the kernel decides, by modes, ACLs and mounts.
func (a *account) checkEnter(ctx context.Context, program, dir string) error {
	if a == nil || a.canEnter(ctx, program, dir) {
		return nil
	}
	return fmt.Errorf("user %q, which runs postgres because it refuses to run as root, may not enter %s: choose a data directory elsewhere, or chmod o+x that one",
		a.name, a.barrier(ctx, program, dir))
}

func (a *account) canEnter(ctx context.Context, program, dir string) bool {
	return a.command(ctx, dir, program, "--version").Run() == nil
}

// barrier returns the topmost directory on the way to dir that the account may not
// enter.
func (a *account) barrier(ctx context.Context, program, dir string) string {
	parent := filepath.Dir(dir)
	if parent != dir && !a.canEnter(ctx, program, parent) {
		return a.barrier(ctx, program, parent)
	}
	return dir
}
