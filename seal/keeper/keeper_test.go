package keeper_test

import (
	"bytes"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gocloud.dev/secrets/localsecrets"

	"github.com/posthorn/posthorn/seal"
	"github.com/posthorn/posthorn/seal/keeper"
)

const someKey = "base64key://cG9zdGhvcm4gdGVzdCBrZXksIG5vdCBhIHNlY3JldCE="

func fileURL(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }

func newKeyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "the key") // with a space, which URLs escape
	if err := keeper.NewKeyFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// wrap encrypts with the keeper of one URL and decrypts with another.
func wrap(t *testing.T, by, unwrapBy string) error {
	t.Helper()
	var wrapped []byte
	for i, u := range []string{by, unwrapBy} {
		k, err := keeper.Open(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		if i == 0 {
			if wrapped, err = k.Encrypt(t.Context(), []byte("data key")); err != nil {
				t.Fatal(err)
			}
			continue
		}
		plain, err := k.Decrypt(t.Context(), wrapped)
		if err == nil && string(plain) != "data key" {
			t.Fatalf("unwrapped as %q", plain)
		}
		return err
	}
	return nil
}

func TestAKeyFileWrapsKeys(t *testing.T) {
	t.Parallel()
	path := newKeyFile(t)
	if err := wrap(t, fileURL(path), fileURL(path)); err != nil {
		t.Error(err)
	}
	if err := wrap(t, fileURL(path), fileURL(newKeyFile(t))); err == nil {
		t.Error("the key of another file unwraps it")
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	if err := wrap(t, fileURL(path), lines[len(lines)-1]); err != nil {
		t.Errorf("its last line is not the key's URL: %v", err)
	}
}

func TestAKeyFileIsNeverOverwritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "seal.key")
	var made atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			switch err := keeper.NewKeyFile(path); {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, os.ErrExist):
				t.Error(err)
			}
			if _, err := keeper.Open(t.Context(), fileURL(path)); err != nil {
				t.Errorf("half a key: %v", err)
			}
		})
	}
	group.Wait()
	entries, err := os.ReadDir(filepath.Dir(path))
	if made.Load() != 1 || len(entries) != 1 || err != nil {
		t.Errorf("%d were made, the directory has %v, %v", made.Load(), entries, err)
	}
}

func TestAKeyFileThatOthersMayReadIsRefused(t *testing.T) {
	t.Parallel()
	path := newKeyFile(t)
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o666, 0o601} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := keeper.Open(t.Context(), fileURL(path)); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if _, err := keeper.Open(t.Context(), fileURL(path)); err != nil {
		t.Errorf("mode 400: %v", err)
	}
}

func TestInvalidKeyIsRefusedWithoutRepeatingIt(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"empty":     "",
		"comments":  "# only\n\n",
		"two keys":  someKey + "\n" + someKey + "\n",
		"short":     "base64key://c2VjcmV0LW1hcmtlcg==\n",
		"no key":    "c2VjcmV0LW1hcmtlcg==\n",
		"garbage":   "base64key://c2VjcmV0LW1hcmtlcg!\n",
		"very long": strings.Repeat("# c2VjcmV0LW1hcmtlcg\n", 1000),
	}
	urls := []string{
		"base64key://", "base64key://c2VjcmV0LW1hcmtlcg==", someKey + "?c2VjcmV0LW1hcmtlcg", someKey + "/c2VjcmV0LW1hcmtlcg",
		"base64key://c2VjcmV0LW1hcmtlcg\x00", "base64key://c2VjcmV0LW1hcmtlcg%zz",
		"c2VjcmV0LW1hcmtlcg", "file://relative/path", "file:relative", "file://", "file:///x?c2VjcmV0LW1hcmtlcg", "vault://key", "",
		fileURL(t.TempDir()), fileURL(filepath.Join(t.TempDir(), "missing")),
	}
	for name, content := range files {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		urls = append(urls, fileURL(path))
	}
	for _, u := range urls {
		_, err := keeper.Open(t.Context(), u)
		if err == nil || strings.Contains(err.Error(), "c2VjcmV0") || strings.Contains(err.Error(), "cG9zdGhvcm4") || strings.Contains(err.Error(), "secret-marker") {
			t.Errorf("%q: %v", u, err)
		}
	}
}

func TestAKeyInAURLIsTheKey(t *testing.T) {
	t.Parallel()
	if err := wrap(t, someKey, someKey); err != nil {
		t.Error(err)
	}
}

// A program that seals must not contain the SDK of a key service, and package seal
// needs only the standard library.
func TestSealingNeedsLittle(t *testing.T) {
	t.Parallel()
	for path, refused := range map[string][]string{
		"github.com/posthorn/posthorn/seal":        {"."},
		"github.com/posthorn/posthorn/seal/keeper": {"github.com/aws/", "github.com/Azure/", "cloud.google.com/", "github.com/hashicorp/", "github.com/jackc/", "github.com/posthorn/"},
	} {
		output, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", path).Output()
		if err != nil || !bytes.Contains(output, []byte(path)) {
			t.Fatalf("%s, %v", output, err)
		}
		for dependency := range strings.FieldsSeq(string(output)) {
			for _, prefix := range refused {
				if dependency != path && (prefix == "." || strings.HasPrefix(dependency, prefix)) {
					t.Errorf("%s needs %s", path, dependency)
				}
			}
		}
	}
}

// gocloud.dev/secrets can decrypt keys that this package wraps, and the reverse.
func TestItIsTheFormatOfLocalSecrets(t *testing.T) {
	t.Parallel()
	ours, err := keeper.Open(t.Context(), someKey)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	key, err := localsecrets.Base64Key(strings.TrimPrefix(someKey, "base64key://"))
	if err != nil {
		t.Fatal(err)
	}
	theirs := localsecrets.NewKeeper(key)
	defer theirs.Close()
	for _, pair := range [][2]seal.Keeper{{ours, theirs}, {theirs, ours}} {
		wrapped, err := pair[0].Encrypt(t.Context(), []byte("data key"))
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := pair[1].Decrypt(t.Context(), wrapped); err != nil || string(plain) != "data key" {
			t.Errorf("unwrapped as %q, %v", plain, err)
		}
		for i := range wrapped {
			if _, err := ours.Decrypt(t.Context(), wrapped[:i]); err == nil {
				t.Errorf("%d of %d bytes can be unwrapped", i, len(wrapped))
			}
			wrapped[i] ^= 1
			if _, err := ours.Decrypt(t.Context(), wrapped); err == nil {
				t.Errorf("it can be unwrapped with byte %d changed", i)
			}
			wrapped[i] ^= 1
		}
	}
}

// A closed keeper refuses to wrap: its key was zeroed.
func TestAClosedKeeperRefuses(t *testing.T) {
	t.Parallel()
	k, err := keeper.Open(t.Context(), someKey)
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := k.Encrypt(t.Context(), []byte("data key"))
	if err != nil {
		t.Fatal(err)
	}
	k.Close()
	if _, err := k.Encrypt(t.Context(), []byte("data key")); err == nil {
		t.Error("it wraps")
	}
	if _, err := k.Decrypt(t.Context(), wrapped); err == nil {
		t.Error("it unwraps")
	}
}
