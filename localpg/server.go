package localpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// Server is a running server. It is safe for concurrent use.
type Server struct {
	config    Config
	directory *directory
	binaries  binaries
	password  string
	socketDir string
	port      int
	process   *process
	logStart  int64 // size of the log when the process started

	stopping atomic.Bool
	done     chan struct{}
	err      error // valid after done is closed
}

// Start starts a server in config.Dir and returns when it accepts connections. The
// first Start in a directory creates the cluster. ctx limits only the starting; the
// server runs until Stop or Kill, or until it ends by itself.
//
// Start first stops a server that a killed process has left running in the same Dir.
// It fails if a living process runs one there.
func Start(ctx context.Context, config Config) (*Server, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	s, err := start(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("start postgres in %s: %w", config.Dir, err)
	}
	return s, nil
}

func start(ctx context.Context, config Config) (*Server, error) {
	owner, err := serverAccount()
	if err != nil {
		return nil, err
	}
	directory, err := openDirectory(config.Dir, owner)
	if err != nil {
		return nil, err
	}
	s := &Server{config: config, directory: directory, done: make(chan struct{})}
	if err := s.run(ctx); err != nil {
		return nil, errors.Join(err, s.release())
	}
	go s.watch()
	return s, nil
}

// run prepares the directory and launches the server in it.
func (s *Server) run(ctx context.Context) error {
	major, err := s.directory.clusterMajor()
	if err != nil {
		return err
	}
	owner := s.directory.owner
	if s.binaries, err = findBinaries(ctx, s.config, owner, major); err != nil {
		return err
	}
	if err := owner.checkEnter(ctx, s.binaries.postgres(), s.config.Dir); err != nil {
		return err
	}
	if err := s.directory.stopLeftovers(ctx, s.config.Logger); err != nil {
		return err
	}
	if s.password, err = s.directory.password(); err != nil {
		return err
	}
	if major == 0 {
		noSync := s.config.Settings["fsync"] == "off"
		if err := s.directory.makeCluster(ctx, s.binaries, noSync); err != nil {
			return err
		}
	}
	if s.socketDir, err = s.directory.makeSocketDir(); err != nil {
		return err
	}
	return s.launchOnPort(ctx)
}

// launchOnPort retries with another port if another program has taken the free port
// before Postgres could.
func (s *Server) launchOnPort(ctx context.Context) error {
	const attempts = 3
	last := s.directory.lastPort()
	for attempt := 1; ; attempt++ {
		port, err := choosePort(s.config.Port, last)
		if err != nil {
			return err
		}
		if err := s.directory.savePort(port); err != nil {
			return err
		}
		s.port = port
		err = s.launch(ctx)
		lostPort := errors.Is(err, errEnded) && !portFree(port)
		if s.config.Port != 0 || !lostPort || attempt == attempts {
			return err
		}
	}
}

// launch starts the process and waits until it serves the database. After an error no
// process is left running.
func (s *Server) launch(ctx context.Context) error {
	if err := s.startProcess(); err != nil {
		return err
	}
	err := s.prepareDatabase(ctx)
	if err == nil {
		return nil
	}
	s.process.abort()
	if errors.Is(err, errEnded) {
		return fmt.Errorf("%w: %s", err, s.exitReport())
	}
	return err
}

func (s *Server) startProcess() error {
	log, err := openLog(s.directory.log())
	if err != nil {
		return err
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return err
	}
	s.logStart = info.Size()
	// The server outlives the context of Start.
	cmd := s.directory.owner.command(context.Background(), s.directory.path, s.binaries.postgres(), s.arguments()...)
	cmd.Stdout, cmd.Stderr = log, log
	s.process, err = startProcess(cmd, s.directory.cluster())
	return err
}

func (s *Server) arguments() []string {
	settings := s.config.settings()
	settings["port"] = strconv.Itoa(s.port)
	settings["listen_addresses"] = "127.0.0.1"
	settings["unix_socket_directories"] = `"` + strings.ReplaceAll(s.socketDir, `"`, `""`) + `"`
	args := []string{"-D", s.directory.cluster()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

func (s *Server) prepareDatabase(ctx context.Context) error {
	conn, err := waitReady(ctx, tcpURL(s.port, s.password, "postgres"), s.process)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return errors.Join(ensureDatabase(ctx, conn, s.config.Database), setSearchPath(ctx, conn))
}

// watch releases the directory when the server has ended. Backends may outlive the
// postmaster for a moment, and the next server must not start before they have ended.
func (s *Server) watch() {
	<-s.process.done
	_, _ = s.directory.waitGone(context.Background(), immediateGrace) // the next Start ends the remaining ones
	if !s.stopping.Load() {
		s.err = fmt.Errorf("postgres in %s ended by itself: %s", s.config.Dir, s.exitReport())
	}
	s.err = errors.Join(s.err, s.release())
	close(s.done)
}

// exitReport is the exit status of the process and the end of its log.
func (s *Server) exitReport() string {
	return s.process.cmd.ProcessState.String() + ": " + logSince(s.directory.log(), s.logStart)
}

func (s *Server) release() error {
	return errors.Join(s.directory.removeShortSocketDir(), s.directory.close())
}

// URL connects to the configured database over TCP, as a superuser. It includes the
// password: treat it as a secret.
func (s *Server) URL() string {
	return tcpURL(s.port, s.password, s.config.Database)
}

// SocketURL is like URL, but connects over the Unix socket.
func (s *Server) SocketURL() string {
	return socketURL(s.socketDir, s.port, s.password, s.config.Database)
}

// Owns reports whether databaseURL was returned by URL of a server with this config.
// The server need not run now, and may have used another port.
func Owns(config Config, databaseURL string) bool {
	config, err := config.withDefaults()
	if err != nil {
		return false
	}
	named, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return false
	}
	password, err := os.ReadFile((&directory{path: config.Dir}).passwordFile())
	return err == nil && named.User == role && named.Database == config.Database &&
		named.Password == strings.TrimSpace(string(password))
}

// Port is the TCP port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// BinDir is the directory of the binaries in use.
func (s *Server) BinDir() string { return s.binaries.dir }

// Version is the version of the binaries in use, for example 15.4.
func (s *Server) Version() string { return s.binaries.version }

// PID is the process id of the postmaster.
func (s *Server) PID() int { return s.process.cmd.Process.Pid }

// Stop shuts the server down and returns when it has ended. It closes open
// connections and rolls back their transactions. If ctx ends first, Stop ends the
// server immediately and returns an error: no committed data is lost, but the next
// start has to recover. Stopping a stopped server does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.stopping.Store(true)
	err := s.process.stop(ctx)
	<-s.done
	if err != nil {
		return fmt.Errorf("stop postgres in %s: %w", s.config.Dir, err)
	}
	return nil
}

// Kill kills all processes of the server, as a power failure would, and returns when
// the server has ended. It serves tests of recovery.
func (s *Server) Kill() error {
	s.stopping.Store(true)
	s.process.kill()
	<-s.done
	return s.err
}

// Done is closed when the server has ended for any reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns the reason why the server ended by itself, once Done is closed. It is
// nil before that, and after Stop and Kill.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// LogFile is the path of the server's log.
func (s *Server) LogFile() string { return s.directory.log() }
