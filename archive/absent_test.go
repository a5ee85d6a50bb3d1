package archive_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/tests3"
)

// A store that does not exist or cannot be read is an error, neither a sound archive nor
// a damaged one.
func TestAnArchiveThatIsNotThere(t *testing.T) {
	t.Parallel()
	_, err := archive.OpenExisting(t.Context(), "file://"+t.TempDir()+"/typo")
	if !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("a directory that is not there: %v", err)
	}
	dir := t.TempDir()
	if _, err = archive.OpenExisting(t.Context(), "file://"+dir+"/a/b"); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("a directory that is not there: %v", err)
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
		t.Errorf("%v was made, %v", made, err)
	}
	for _, r := range []archive.Range{{}, {Namespaces: []string{"default"}}} {
		if _, err = open(t, "file://"+dir).Verify(t.Context(), archive.VerifyConfig{Range: r}); !errors.Is(err, posthorn.ErrNotFound) {
			t.Errorf("an empty directory: %v", err)
		}
	}

	w := newWorld(t)
	w.publish("orders", 5)
	w.archive(quick)
	everything := archive.Range{Namespaces: []string{"default"}}
	_, err = w.store.Replay(t.Context(), w.db, archive.ReplayConfig{Range: archive.Range{Namespaces: []string{"default"}, FromID: 100}, ToGroup: "nobody"})
	if !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("a group that is not there: %v", err)
	}
	_, err = open(t, "file://"+dir).Replay(t.Context(), w.db, archive.ReplayConfig{Range: everything, ToStream: "again"})
	if !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("a replay from an empty directory: %v", err)
	}
}

func TestABucketThatCannotBeRead(t *testing.T) {
	t.Parallel()
	bucket := tests3.NewBucket(t)
	u, err := url.Parse(bucket.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Host = "nosuchbucket"
	if _, err := archive.OpenExisting(t.Context(), u.String()); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("a bucket that is not there: %v", err)
	}
	if _, err := archive.OpenExisting(t.Context(), bucket.URL()+"&anonymous=true"); !errors.Is(err, posthorn.ErrRefused) {
		t.Errorf("no credentials: %v", err)
	}

	server := tests3.Start(t)
	w := worldOn(t, server.URL(), server.Dir())
	w.publish("orders", 5)
	w.archive(quick)
	server.Kill()
	report, err := w.store.Verify(t.Context(), archive.VerifyConfig{Range: archive.Range{Namespaces: []string{"default"}}, Log: w.db})
	if err == nil || errors.Is(err, posthorn.ErrNotFound) || errors.Is(err, posthorn.ErrRefused) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a server that does not answer: %v", err)
	}
	if len(report.Problems) > 0 {
		t.Errorf("it is called damaged: %+v", report.Problems)
	}
}

// The process of an archive that was deleted ends, with an error.
func TestAnArchiveThatIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", 5)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- archive.New(w.db, w.store, quick).Run(ctx) }()
	w.Await("select exists (select from posthorn.archives)")
	w.archived()
	w.Exec("select posthorn.delete_group('default', 'archive')")
	if err := await.Value(t, "its process ends", ended); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("it ended with %v", err)
	}
}
