package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// busyWith is an environment variable that makes this program a process which keeps a
// processor or the disk busy until its standard input ends.
const busyWith = "TESTRUN_BUSY_WITH"

// startBusy keeps each processor and the disk busy until stop is called or this
// process ends.
func startBusy() (stop func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	kinds := []string{"disk"}
	for range runtime.NumCPU() {
		kinds = append(kinds, "processor")
	}
	var running []*exec.Cmd
	var inputs []io.Closer
	stop = func() {
		for i, cmd := range running {
			_ = inputs[i].Close()
			_ = cmd.Wait()
		}
	}
	for _, kind := range kinds {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), busyWith+"="+kind)
		input, err := cmd.StdinPipe()
		if err := errors.Join(err, cmd.Start()); err != nil {
			stop()
			return nil, fmt.Errorf("keep the %s busy: %w", kind, err)
		}
		running, inputs = append(running, cmd), append(inputs, input)
	}
	return stop, nil
}

func keepBusy(kind string) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if kind == "processor" {
		for sum := sha256.Sum256(nil); ; {
			sum = sha256.Sum256(sum[:])
		}
	}
	file, err := os.CreateTemp(filepath.Join(".cache"), "busy-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
	_ = os.Remove(file.Name()) // removed when the process ends
	for megabyte := make([]byte, 1<<20); ; {
		for i := range int64(64) {
			_, _ = file.WriteAt(megabyte, i<<20)
			_ = file.Sync()
		}
	}
}
