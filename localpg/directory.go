package localpg

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// directory is the data directory, locked by this process from openDirectory to
// close.
type directory struct {
	path  string
	owner *account
	lock  *os.File
}

// openDirectory locks the data directory and creates it if it is missing. The kernel
// drops the lock when this process ends for any reason, so the owner of a lock always
// lives.
func openDirectory(path string, owner *account) (*directory, error) {
	if err := makeDirectory(path, owner); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("already in use by the process with pid %s: stop it, or choose another directory", holder(lock))
		}
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	d := &directory{path: path, owner: owner, lock: lock}
	if err := d.sign(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// makeDirectory creates the data directory. If this process is root, root owns the
// directory: an account that owned it could plant links for root to follow. The
// account needs only to pass through.
func makeDirectory(path string, owner *account) error {
	if owner == nil {
		return os.MkdirAll(path, 0o700)
	}
	if err := os.MkdirAll(path, 0o711); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil || len(entries) > 0 {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Chmod(path, info.Mode().Perm()|0o011)
}

func holder(lock *os.File) string {
	pid, err := os.ReadFile(lock.Name())
	if err != nil || len(pid) == 0 {
		return "unknown"
	}
	return strings.TrimSpace(string(pid))
}

func (d *directory) sign() error {
	if err := d.lock.Truncate(0); err != nil {
		return err
	}
	_, err := d.lock.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return err
}

func (d *directory) cluster() string { return filepath.Join(d.path, "pgdata") }

func (d *directory) log() string { return filepath.Join(d.path, "postgres.log") }

// password reads the role's password, or creates one. The account must be able to
// read it too, because initdb does.
func (d *directory) password() (string, error) {
	path := d.passwordFile()
	content, err := os.ReadFile(path)
	if err == nil && len(content) > 0 {
		return strings.TrimSpace(string(content)), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	password := rand.Text()
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		return "", err
	}
	return password, d.owner.own(path)
}

func (d *directory) passwordFile() string { return filepath.Join(d.path, "password") }

// lastPort is the port of the last run, or 0.
func (d *directory) lastPort() int {
	content, err := os.ReadFile(d.portFile())
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(strings.TrimSpace(string(content)))
	return port
}

func (d *directory) savePort(port int) error {
	return os.WriteFile(d.portFile(), fmt.Appendln(nil, port), 0o644)
}

func (d *directory) portFile() string { return filepath.Join(d.path, "port") }

// makeOwned creates a directory that only the server's account may enter.
func (d *directory) makeOwned(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return d.owner.own(path)
}

// close unlocks the directory. The lock file stays: if it were removed, two processes
// could lock two files of the same name. Closing the file would not drop the lock
// while another goroutine starts a program, since the new process shares all open
// files until its program runs; hence the explicit unlock.
func (d *directory) close() error {
	return errors.Join(syscall.Flock(int(d.lock.Fd()), syscall.LOCK_UN), d.lock.Close())
}
