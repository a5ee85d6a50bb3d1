package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// role is the superuser that initdb creates and that URL names.
const role = "posthorn"

// clusterMajor is the major version of the cluster, or 0 if there is no cluster.
func (d *directory) clusterMajor() (int, error) {
	path := filepath.Join(d.cluster(), "PG_VERSION")
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return major, nil
}

// makeCluster runs initdb in a temporary directory and renames it. So the cluster is
// complete or missing, even if this process dies in between.
//
// The locale is C: sort orders of the operating system change between its releases,
// and indexes made with the old order would be corrupt.
func (d *directory) makeCluster(ctx context.Context, bin binaries, noSync bool) error {
	unfinished := d.cluster() + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := d.makeOwned(unfinished); err != nil {
		return err
	}
	args := []string{
		"--pgdata", unfinished,
		"--username", role,
		"--pwfile", d.passwordFile(),
		"--auth", "scram-sha-256",
		"--encoding", "UTF8",
		"--no-locale",
		"--data-checksums",
	}
	if noSync {
		args = append(args, "--no-sync")
	}
	out, err := d.owner.command(ctx, d.path, bin.initdb(), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLines(out))
	}
	return os.Rename(unfinished, d.cluster())
}
