package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/s3blob" // s3://
	"gocloud.dev/gcerrors"

	"github.com/posthorn/posthorn/internal/pg"
)

// Store is a bucket or directory with archives. It is safe for use by any number of
// goroutines.
type Store struct {
	bucket   *blob.Bucket
	location string
	dir      string // the directory of a file store, whose files are synced; otherwise empty
}

// Open opens a store by its URL: file:///directory, or s3://bucket/prefix with the
// parameters of gocloud.dev/blob/s3blob, such as region, endpoint and
// use_path_style; credentials are found as every AWS program finds them. A
// directory that does not exist is made.
func Open(ctx context.Context, address string) (*Store, error) {
	return open(ctx, address, true)
}

// OpenExisting opens a store that is to be read. It fails with a not-found error
// when there is no such directory or bucket, and makes none.
func OpenExisting(ctx context.Context, address string) (*Store, error) {
	s, err := open(ctx, address, false)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	if _, _, err := s.bucket.ListPage(ctx, blob.FirstPageToken, 1, nil); err != nil {
		_ = s.Close()
		return nil, unreadable("read "+s.location, err)
	}
	return s, nil
}

// firstAnswer is how long OpenExisting waits for an answer of the store.
const firstAnswer = 30 * time.Second

func open(ctx context.Context, address string, create bool) (*Store, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return nil, invalid("the URL of an archive cannot be parsed", "Write it like s3://bucket/prefix?region=eu-central-1 or file:///var/archive.")
	}
	if u.User != nil {
		return nil, invalid("the URL of an archive has a user in it", "Give credentials in the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.")
	}
	if u.Scheme == fileblob.Scheme {
		return openFiles(u, create)
	}
	query := u.Query()
	prefix := strings.Trim(u.Path, "/")
	if p := strings.Trim(query.Get("prefix"), "/"); p != "" {
		prefix = strings.TrimPrefix(prefix+"/"+p, "/")
	}
	query.Del("prefix")
	location := u.Scheme + "://" + u.Host
	bare := url.URL{Scheme: u.Scheme, Host: u.Host, RawQuery: query.Encode()}
	bucket, err := blob.OpenBucket(ctx, bare.String())
	if err != nil {
		return nil, hinted(fmt.Errorf("open %s: %w", location, err), "This binary opens: "+strings.Join(blob.DefaultURLMux().BucketSchemes(), ", ")+".")
	}
	if prefix != "" {
		location += "/" + prefix
		bucket = blob.PrefixedBucket(bucket, prefix+"/")
	}
	return &Store{bucket: bucket, location: location}, nil
}

func openFiles(u *url.URL, create bool) (*Store, error) {
	dir := u.Path
	if u.Host == "." {
		dir = strings.TrimPrefix(dir, "/")
	} else if u.Host != "" && u.Host != "localhost" {
		return nil, invalid("a file URL names no host", "It has three slashes: file:///var/archive.")
	}
	if len(u.Query()) > 0 {
		return nil, invalid("a file URL has no parameters here", "Write it like file:///var/archive.")
	}
	dir, err := filepath.Abs(filepath.FromSlash(dir))
	if err != nil {
		return nil, fmt.Errorf("open files: %w", err)
	}
	if info, err := os.Stat(dir); !create && (errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir()) {
		return nil, notFound(fmt.Sprintf("there is no directory %s", dir), checkURL)
	}
	// Temporary files are beside the others: a rename must not leave the disk.
	bucket, err := fileblob.OpenBucket(dir, &fileblob.Options{
		CreateDir: create, NoTempDir: true, DirFileMode: 0o755, Metadata: fileblob.MetadataDontWrite,
	})
	if err != nil {
		return nil, fmt.Errorf("open files: %w", err)
	}
	return &Store{bucket: bucket, location: "file://" + filepath.ToSlash(dir), dir: dir}, nil
}

// Location is the URL of the store without its parameters.
func (s *Store) Location() string { return s.location }

// reachTime is enough for a bucket far away, and less than the 25 seconds that AWS's
// client looks for credentials on the network.
const reachTime = 10 * time.Second

// Reach returns an error if the bucket does not exist or does not answer. Credentials
// that may write but not list suffice.
func (s *Store) Reach(ctx context.Context) error {
	if s.dir != "" {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	exists, err := s.bucket.IsAccessible(limited)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		err = fmt.Errorf("no answer within %v", reachTime)
	case gcerrors.Code(err) == gcerrors.PermissionDenied, err == nil && exists:
		return nil
	case err == nil:
		err = pg.ErrNotFound
	}
	return hinted(fmt.Errorf("cannot reach %s: %w", s.location, err),
		"Check the bucket, its region or endpoint, and the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile.")
}

// Close closes the store, which nothing may be using.
func (s *Store) Close() error { return s.bucket.Close() }

// errExists is the error of put for a new object whose key is taken.
var errExists = errors.New("the object exists")

// put writes an object whole or not at all. If fresh is set, it fails with [errExists]
// when the object exists.
func (s *Store) put(ctx context.Context, key string, data []byte, fresh bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // before Close, it undoes the write
	var file *os.File
	w, err := s.bucket.NewWriter(ctx, key, &blob.WriterOptions{
		ContentType: contentType(key),
		IfNotExist:  fresh,
		BeforeWrite: func(as func(any) bool) error {
			as(&file)
			return nil
		},
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	_, err = w.Write(data)
	if err == nil && file != nil {
		err = file.Sync()
	}
	if err != nil {
		cancel()
		_ = w.Close()
		return fmt.Errorf("write %s: %w", key, err)
	}
	switch err := w.Close(); {
	case gcerrors.Code(err) == gcerrors.FailedPrecondition:
		return errExists
	case err != nil:
		return fmt.Errorf("write %s: %w", key, err)
	}
	return s.syncDirectories(key)
}

func contentType(key string) string {
	if strings.HasSuffix(key, ".json") {
		return "application/json"
	}
	return "application/zstd"
}

// syncDirectories syncs the directories above a new file, up to the root of the store.
func (s *Store) syncDirectories(key string) error {
	if s.dir == "" {
		return nil
	}
	for dir := filepath.Dir(filepath.Join(s.dir, filepath.FromSlash(key))); len(dir) >= len(s.dir); dir = filepath.Dir(dir) {
		d, err := os.Open(dir)
		if err != nil {
			return fmt.Errorf("write %s: %w", key, err)
		}
		err = d.Sync()
		_ = d.Close() // only read
		if err != nil {
			return fmt.Errorf("write %s: %w", key, err)
		}
	}
	return nil
}

// get reads an object whole. It fails with [pg.ErrNotFound] if there is none.
func (s *Store) get(ctx context.Context, key string) ([]byte, error) {
	data, err := s.bucket.ReadAll(ctx, key)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("%s: %w", key, pg.ErrNotFound)
	} else if err != nil {
		return nil, unreadable("read "+key, err)
	}
	return data, nil
}

// directories lists the parts of keys that follow a prefix, up to the next slash. The
// prefix is empty or ends with a slash.
func (s *Store) directories(ctx context.Context, prefix string) ([]string, error) {
	directories, _, err := s.list(ctx, prefix)
	return directories, err
}

// list lists the directories and the objects at a prefix.
func (s *Store) list(ctx context.Context, prefix string) (directories, objects []string, err error) {
	list := s.bucket.List(&blob.ListOptions{Prefix: prefix, Delimiter: "/"})
	for {
		object, err := list.Next(ctx)
		if err == io.EOF {
			return directories, objects, nil
		} else if err != nil {
			return nil, nil, unreadable(fmt.Sprintf("list %s/%s", s.location, prefix), err)
		}
		if name := strings.TrimPrefix(object.Key, prefix); object.IsDir {
			directories = append(directories, strings.TrimSuffix(name, "/"))
		} else {
			objects = append(objects, name)
		}
	}
}
