package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/webhook/send"
	"github.com/posthorn/posthorn/server"
)

const serveLong = `Serve the HTTP API of a database, until Ctrl-C; /docs describes the API. Like every
node it also does upkeep. It does not migrate.

As soon as there is a token (see posthorn tokens), every request needs one. Before
that, programs on this machine may do everything, and other machines have no
access: serve refuses an address that is not loopback, unless --insecure is given.

With --database it serves several databases: each below /d/NAME, with tokens of its
own, and the first one also at the root. The page at / shows all of them, and what
fails first. A database that is away is tried again, and takes nothing else with it.

` + keeperHelp + `

On the first signal it finishes running requests and answers those that wait; a
second signal ends it at once.`

const serveExample = `  posthorn serve
  posthorn serve --listen :8443 --tls-cert server.pem --tls-key server.key
  posthorn serve --seal-key file:///etc/posthorn/seal.key
  posthorn serve --cors-origin https://app.example.com
  posthorn serve --database orders=postgres://db1.example/shop --database billing=postgres://db2.example/billing`

const defaultListen = "127.0.0.1:8080"

// httpFlags are the flags of serve that up has too.
type httpFlags struct {
	listen            string
	certFile, keyFile string
	corsOrigins       []string
	insecure          bool
	maxBody           int64
	keepers           keeperFlags
	webhookAllow      []string
}

func (f *httpFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", defaultListen, "where to serve HTTP")
	flags.StringVar(&f.certFile, "tls-cert", "", "serve HTTPS with the certificate in this file; a changed file is read again")
	flags.StringVar(&f.keyFile, "tls-key", "", "the file with its key")
	flags.StringArrayVar(&f.corsOrigins, "cors-origin", nil, "web pages of this origin may call from browsers; may be repeated, * means any")
	flags.BoolVar(&f.insecure, "insecure", false, "while there is no token, answer every request, also of other machines")
	f.keepers.add(cmd)
	flags.StringArrayVar(&f.webhookAllow, "webhook-allow", nil, "webhooks may reach these private addresses, such as 10.1.0.0/16; may be repeated")
	flags.Int64Var(&f.maxBody, "max-body", 4<<20, "the largest body of a request, in bytes")
}

func newServe(a *app) *cobra.Command {
	cmd := about{"serve", "Serve the HTTP API", serveLong, serveExample}.command()
	var f httpFlags
	f.add(cmd)
	var several databasesFlag
	several.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return ignoreInterrupt(cmd.Context(), a.serve(cmd, f, several))
	}
	return cmd
}

// ignoreInterrupt removes the error of an interrupt: it is the normal end of a command
// that runs until then.
func ignoreInterrupt(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (a *app) serve(cmd *cobra.Command, f httpFlags, several databasesFlag) error {
	ctx := cmd.Context()
	databases, err := a.databases(several)
	if err != nil {
		return err
	}
	web, err := f.open(ctx, a.log)
	if err != nil {
		return err
	}
	defer web.close()
	if len(databases) > 0 {
		return a.serveDatabases(cmd, web, databases)
	}
	if err := web.openKeepers(ctx); err != nil {
		return err
	}
	ph, err := a.client(ctx, "posthorn serve", web.keepers)
	if err != nil {
		return err
	}
	defer ph.Close()
	if err := web.readAccess(ctx, ph); err != nil {
		return err
	}
	if err := web.print(cmd.OutOrStdout()); err != nil {
		return err
	}
	if err := printLine(cmd, "posthorn is ready"); err != nil {
		return err
	}
	return web.run(ctx, ph)
}

// web serves HTTP. It has the address from the beginning, and keepers and access later.
type web struct {
	flags       httpFlags
	listener    net.Listener
	certificate *certificate // nil without TLS
	access      access
	keepers     keepers
	webhooks    send.Config
}

func (f httpFlags) open(ctx context.Context, log *slog.Logger) (*web, error) {
	w := &web{flags: f}
	if f.maxBody <= 0 {
		return nil, usageError{errors.New("--max-body must be positive"), "leave it out for 4 MiB"}
	}
	var err error
	if w.webhooks, err = f.webhookGuard(); err != nil {
		return nil, err
	}
	if f.certFile != "" || f.keyFile != "" {
		if w.certificate, err = loadCertificate(f.certFile, f.keyFile, log); err != nil {
			return nil, err
		}
	}
	w.listener, err = listen(ctx, f.listen)
	return w, err
}

// openKeepers opens the keepers of confidential streams.
func (w *web) openKeepers(ctx context.Context) (err error) {
	w.keepers, err = w.flags.keepers.open(ctx)
	return err
}

func (w *web) close() {
	_ = w.listener.Close()
	w.keepers.close()
}

// readAccess finds out whether requests need tokens.
func (w *web) readAccess(ctx context.Context, ph *posthorn.Client) (err error) {
	w.access, err = accessAt(ctx, ph, w.listener.Addr(), w.flags.insecure)
	return err
}

func (w *web) print(out io.Writer) error {
	_, err := fmt.Fprintf(out, "http: %s\naccess: %s\n", w.url(), w.access)
	return err
}

func (w *web) url() string { return urlOf(w.listener.Addr(), w.certificate != nil) }

// run serves, and runs the node, until ctx ends.
func (w *web) run(ctx context.Context, ph *posthorn.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer deliverWebhooks(ph, w.webhooks).Close()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- w.serve(ctx, ph)
	}()
	err := ph.Run(ctx)
	cancel()
	return errors.Join(err, <-served)
}

func (w *web) serve(ctx context.Context, ph *posthorn.Client) error {
	return server.New(ph, w.options()).Serve(ctx, w.listener, w.tls())
}

func (w *web) options() server.Options {
	return server.Options{
		MaxBodyBytes: w.flags.maxBody, CORSOrigins: w.flags.corsOrigins, Version: currentVersion().Version,
		Tokens: w.access == accessTokens, Local: w.access == accessLocal && !w.flags.insecure,
	}
}

// tls is nil without a certificate.
func (w *web) tls() *tls.Config {
	if w.certificate == nil {
		return nil
	}
	return w.certificate.config()
}
