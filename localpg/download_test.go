package localpg

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDownload(t *testing.T) {
	t.Parallel()
	config := testConfig(sharedDir(t))
	config.CacheDir = filepath.Join(sharedDir(t), "cache")
	config.DownloadURL = serveJar(t, jar(t, "17.5"))
	dir, err := download(t.Context(), config, 17)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	found, err := inspect(t.Context(), dir, owner)
	if err != nil || found.version != "17.5" {
		t.Errorf("downloaded %q, %v", found.version, err)
	}
	if entries, _ := filepath.Glob(filepath.Join(config.CacheDir, "download-*")); len(entries) > 0 {
		t.Errorf("files remain: %q", entries)
	}

	// The second start finds the binaries without the network.
	config.DownloadURL = serveJar(t, nil)
	if again, err := download(t.Context(), config, 17); err != nil || again != dir {
		t.Errorf("second download: %q, %v", again, err)
	}
	cached := places{globs: usualPlaces(config.CacheDir).globs}
	if got, seen := searchBinaries(t.Context(), cached, owner, 17); got.dir != dir && got.version != "17.5" {
		t.Errorf("search found %+v, unusable: %q", got, seen)
	}
}

func TestDownloadInvalidArchive(t *testing.T) {
	t.Parallel()
	config := testConfig(sharedDir(t))
	config.CacheDir = sharedDir(t)
	config.DownloadURL = serveJar(t, []byte("not an archive"))
	if _, err := download(t.Context(), config, 0); err == nil {
		t.Error("an invalid archive was accepted")
	}
	_, err := download(t.Context(), config, 14)
	wantError(t, err, "no version 14")
}

// serveJar serves content as every archive of a Maven repository. If content is nil,
// the repository is empty.
func serveJar(t *testing.T, content []byte) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if content == nil || !strings.HasSuffix(r.URL.Path, ".jar") {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(content) // the client may have disconnected
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// jar makes an archive in the repository's format: a zip that contains a tar.xz with
// the programs.
func jar(t *testing.T, version string) []byte {
	t.Helper()
	var buffer bytes.Buffer
	archive := zip.NewWriter(&buffer)
	file, err := archive.Create("postgres-linux-x86_64.txz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(compress(t, tarball(t, version))); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func tarball(t *testing.T, version string) []byte {
	t.Helper()
	source := fakeBinaries(t, filepath.Join(t.TempDir(), "bin"), version)
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, name := range []string{"initdb", "postgres"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			t.Fatal(err)
		}
		// A strict umask during unpacking leaves such a mode.
		header := &tar.Header{Name: "bin/" + name, Mode: 0o700, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// compress stores content in the xz format without compressing it: the standard
// library has no xz writer, and some machines lack the program. See "The .xz File
// Format" for the fields.
func compress(t *testing.T, content []byte) []byte {
	t.Helper()
	if len(content) > 1<<16 {
		t.Fatalf("%d bytes do not fit one chunk", len(content))
	}
	flags := []byte{0, 1} // CRC32 as the check
	blockHeader := withCRC([]byte{2, 0, 0x21, 1, 0, 0, 0, 0})
	chunk := binary.BigEndian.AppendUint16([]byte{1}, uint16(len(content)-1))
	chunk = append(append(chunk, content...), 0)

	index := binary.AppendUvarint([]byte{0, 1}, uint64(len(blockHeader)+len(chunk)+crc32.Size))
	index = withCRC(pad(binary.AppendUvarint(index, uint64(len(content)))))
	footer := binary.LittleEndian.AppendUint32(nil, uint32(len(index)/4-1))
	footer = append(footer, flags...)

	return slices.Concat(
		[]byte("\xfd7zXZ\x00"), withCRC(flags),
		blockHeader, pad(chunk), crc(content),
		index,
		crc(footer), footer, []byte("YZ"),
	)
}

func crc(content []byte) []byte {
	return binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(content))
}

func withCRC(content []byte) []byte { return slices.Concat(content, crc(content)) }

// pad fills up to a multiple of four bytes.
func pad(content []byte) []byte {
	return slices.Concat(content, make([]byte, (4-len(content)%4)%4))
}
