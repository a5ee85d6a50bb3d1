package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	_ "gocloud.dev/secrets/awskms"     // awskms://
	_ "gocloud.dev/secrets/hashivault" // hashivault://

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/sealing"
	"github.com/posthorn/posthorn/seal"
	"github.com/posthorn/posthorn/seal/keeper"
)

// keeperFlags are the flags for keepers, which wrap the keys of confidential streams.
type keeperFlags struct {
	key   string
	named []string
}

const keeperHelp = `Payloads of confidential streams are sealed and opened with the keeper of
--seal-key, or, if the policy of the stream names a keeper, with that of --keeper
NAME=URL. A URL is file:///path/to/key, base64key://…, awskms://… or
hashivault://….`

func (f *keeperFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.key, "seal-key", "", "the URL of the keeper for confidential streams, such as file:///etc/posthorn/seal.key (env POSTHORN_SEAL_KEY)")
	flags.StringArrayVar(&f.named, "keeper", nil, "NAME=URL of a keeper that policies name; may be repeated (env POSTHORN_KEEPERS, separated by spaces)")
}

// urls returns the URLs of keepers by name. Errors do not quote them: a URL may have a key.
func (f *keeperFlags) urls() (map[string]string, error) {
	urls := map[string]string{}
	key := f.key
	if key == "" {
		key = os.Getenv("POSTHORN_SEAL_KEY")
	}
	if key != "" {
		urls[""] = key
	}
	named := f.named
	if len(named) == 0 {
		named = strings.Fields(os.Getenv("POSTHORN_KEEPERS"))
	}
	for _, pair := range named {
		name, url, ok := strings.Cut(pair, "=")
		if !ok || name == "" || strings.Contains(name, "://") {
			return nil, usageError{errors.New("a keeper is given as NAME=URL"), "such as --keeper payroll=awskms://alias/payroll?region=eu-central-1"}
		}
		if _, twice := urls[name]; twice {
			return nil, usageError{fmt.Errorf("keeper %q is given twice", name), "give each name once"}
		}
		urls[name] = url
	}
	return urls, nil
}

// keepers are open keepers by name.
type keepers map[string]keeper.Keeper

func (f *keeperFlags) open(ctx context.Context) (keepers, error) {
	urls, err := f.urls()
	if err != nil {
		return nil, err
	}
	open := keepers{}
	for name, url := range urls {
		if open[name], err = keeper.Open(ctx, url); err != nil {
			delete(open, name)
			open.close()
			which := "--seal-key"
			if name != "" {
				which = fmt.Sprintf("keeper %q", name)
			}
			return nil, usageError{fmt.Errorf("%s: %w", which, err), "see docs/sealing.md"}
		}
	}
	return open, nil
}

func (k keepers) close() {
	for _, open := range k {
		_ = open.Close()
	}
}

func (k keepers) config() posthorn.SealConfig {
	config := posthorn.SealConfig{}
	if len(k) > 0 {
		config.Keepers = seal.Keepers{}
		for name, open := range k {
			config.Keepers[name] = open
		}
	}
	return config
}

// withOpener runs use with an opener of sealed payloads.
func (f *keeperFlags) withOpener(ctx context.Context, db posthorn.DB, log *slog.Logger, use func(admin.Opener) error) error {
	open, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer open.close()
	var sealer *seal.Sealer
	if len(open) > 0 {
		sealer = seal.NewSealer(sealing.Keys{DB: db}, open.config().Keepers, seal.Config{Logger: log})
		defer sealer.Close()
	}
	return use(sealing.New(db, sealer, log))
}

// ownKey uses the key file of up's own database, and makes it if there is none.
func (f *keeperFlags) ownKey(dir string) (made string, err error) {
	urls, err := f.urls()
	if err != nil || urls[""] != "" {
		return "", err
	}
	path, err := filepath.Abs(filepath.Join(dir, "seal.key"))
	if err != nil {
		return "", err
	}
	f.key = "file://" + path
	switch err := keeper.NewKeyFile(path); {
	case errors.Is(err, os.ErrExist):
		return "", nil
	case err != nil:
		return "", err
	}
	return path, nil
}
