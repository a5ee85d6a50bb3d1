package keeper

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

const (
	keyPrefix = keyScheme + "://"
	// maxFileSize is far above the size of a key file.
	maxFileSize = 4096
	// othersMay are the permission bits of group and others.
	othersMay = 0o077
)

const keyComment = `# A key of Posthorn. Whoever has it, and the database, can read all sealed payloads.
# Without it, nobody can. Keep a copy where the database's copies are not.
`

// NewKeyFile makes a key and writes it to a new file that only the owner may read. If
// the file exists, NewKeyFile leaves it unchanged and returns an [os.ErrExist].
func NewKeyFile(path string) error {
	var key [keySize]byte
	defer clear(key[:])
	rand.Read(key[:])
	content := append([]byte(keyComment), keyPrefix...)
	content = base64.URLEncoding.AppendEncode(content, key[:])
	content = append(content, '\n')
	defer clear(content)
	if err := writeNew(path, content); err != nil {
		return fmt.Errorf("make key file: %w", err)
	}
	return nil
}

// writeNew writes a temporary file and links it to its name. So no process reads half
// a key, and of two concurrent calls the second fails.
func writeNew(path string, content []byte) error {
	dir := filepath.Dir(path)
	file, err := os.CreateTemp(dir, ".key-*") // has mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes the new file name durable: a key that has sealed a payload must
// survive a crash.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" { // Windows cannot sync directories
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func openKeyFile(path string) (Keeper, error) {
	content, err := readKeyFile(path)
	if err != nil {
		return nil, fmt.Errorf("open key file: %w", err)
	}
	defer clear(content)
	key, err := parseKeyFile(content)
	if err != nil {
		return nil, fmt.Errorf("open key file %s: %w", path, err)
	}
	return &local{key: key}, nil
}

func readKeyFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat() // of the open file, since the name may now refer to another one
	if err != nil {
		return nil, err
	}
	mode := info.Mode()
	switch {
	case !mode.IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case mode&othersMay != 0 && runtime.GOOS != "windows":
		return nil, fmt.Errorf("%s may be read or written by others (mode %04o): chmod 600 it, and consider whether another user has read it", path, mode.Perm())
	case info.Size() > maxFileSize:
		return nil, fmt.Errorf("%s is too large for a key file", path)
	}
	return io.ReadAll(io.LimitReader(file, maxFileSize))
}

// parseKeyFile returns the key on the only line that is not a comment.
func parseKeyFile(content []byte) (key [keySize]byte, err error) {
	var found []byte
	for line := range bytes.Lines(content) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if found != nil {
			return key, errors.New("there is more than one key in it")
		}
		found = line
	}
	return parseKey(found)
}

func parseKey(text []byte) (key [keySize]byte, err error) {
	encoded, ok := bytes.CutPrefix(text, []byte(keyPrefix))
	if !ok {
		return key, errors.New("a key begins with " + keyPrefix)
	}
	decoded := make([]byte, base64.URLEncoding.DecodedLen(len(encoded)))
	defer clear(decoded)
	n, err := base64.URLEncoding.Strict().Decode(decoded, encoded)
	if err != nil || n != keySize {
		return key, fmt.Errorf("a key is %s and %d bytes in URL-safe base64", keyPrefix, keySize)
	}
	copy(key[:], decoded)
	return key, nil
}
