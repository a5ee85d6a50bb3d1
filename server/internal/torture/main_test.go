package torture

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/server"
)

// role, in the environment, makes the test binary a server or a worker, which is
// killed.
const (
	role     = "POSTHORN_TORTURE_ROLE"
	database = "POSTHORN_TORTURE_DATABASE"
	address  = "POSTHORN_TORTURE_ADDRESS"
)

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "serve":
		go endWithParent()
		fmt.Fprintln(os.Stderr, beServer(context.Background()))
		os.Exit(1)
	case "work":
		go endWithParent()
		beWorkers(os.Getenv(address))
	default:
		posthorntest.Main(m)
	}
}

// endWithParent: its end of the pipe closes when it has gone, however.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

func beServer(ctx context.Context) error {
	quiet := slog.New(slog.DiscardHandler)
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: os.Getenv(database), Logger: quiet})
	if err != nil {
		return err
	}
	var listener net.Listener
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		listener, err = net.Listen("tcp", os.Getenv(address))
		if err == nil {
			break
		}
		if time.Now().After(deadline) { // the one before is dead, but its port was not free
			return err
		}
	}
	fmt.Println(listener.Addr())
	return server.New(ph, server.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}).
		Serve(ctx, listener, nil)
}
