package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/posthorn/posthorn/internal/pg"
)

// window is the size of the compression window. It costs little compression, and lets a
// reader keep segments of many streams open.
const window = 256 << 10

var errAltered = errors.New("its checksum is not the one that was noted")

// encoder makes segments. One goroutine uses it.
type encoder struct {
	zstd *zstd.Encoder
	line []byte
}

func newEncoder() (*encoder, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(window), zstd.WithEncoderCRC(true))
	if err != nil {
		return nil, err
	}
	return &encoder{zstd: z}, nil
}

// encoded is a segment as an object.
type encoded struct {
	data    []byte
	content [sha256.Size]byte // hash before compression
}

// encode compresses events, and sets the fields of the segment that depend on them.
func (c *encoder) encode(events iter.Seq2[pg.StoredEvent, error], seg *pg.ArchiveSegment) (encoded, error) {
	var buffer bytes.Buffer
	c.zstd.Reset(&buffer)
	content := sha256.New()
	seg.Events = 0
	versions := map[int32]bool{}
	for e, err := range events {
		if err != nil {
			return encoded{}, err
		}
		c.line = appendLine(c.line[:0], &e)
		content.Write(c.line)
		if _, err := c.zstd.Write(c.line); err != nil {
			return encoded{}, err
		}
		if seg.Events == 0 {
			seg.FirstAt = e.PublishedAt
		}
		seg.LastAt = e.PublishedAt
		seg.Events++
		if version, sealed := keyVersion(e.Payload); sealed {
			versions[version] = true
		}
	}
	if err := c.zstd.Close(); err != nil {
		return encoded{}, err
	}
	for version := range versions {
		seg.KeyVersions = append(seg.KeyVersions, version)
	}
	slices.Sort(seg.KeyVersions)
	seg.Size = int64(buffer.Len())
	seg.SHA256 = sumOf(buffer.Bytes())
	return encoded{buffer.Bytes(), [sha256.Size]byte(content.Sum(nil))}, nil
}

// sameContent reports whether an object has the contents of an encoded segment. The
// bytes may differ, since another version of the compressor may have written them.
func (x *encoded) sameContent(object []byte) bool {
	if bytes.Equal(x.data, object) {
		return true
	}
	decoder, err := newDecoder(object)
	if err != nil {
		return false
	}
	defer decoder.Close()
	content := sha256.New()
	if _, err := io.Copy(content, decoder); err != nil {
		return false
	}
	return hex.EncodeToString(content.Sum(nil)) == hex.EncodeToString(x.content[:])
}

// maxWindow limits the memory that a forged segment can make a reader use. Segments of
// an archiver need less.
const maxWindow = 64 << 20

func newDecoder(object []byte) (*zstd.Decoder, error) {
	return zstd.NewReader(bytes.NewReader(object), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
}

// readSegment compares a segment with its size and checksum in the manifest, and then
// yields its events in order. It yields an error and ends if a check fails.
func (s *Store) readSegment(ctx context.Context, ref segmentRef) iter.Seq2[pg.StoredEvent, error] {
	return func(yield func(pg.StoredEvent, error) bool) {
		object, err := s.get(ctx, ref.key)
		if err == nil {
			err = ref.check(object)
		}
		if err != nil {
			yield(pg.StoredEvent{}, err)
			return
		}
		ref.events(object, yield)
	}
}

func (ref *segmentRef) check(object []byte) error {
	if int64(len(object)) != ref.Size {
		return fmt.Errorf("%s has %d bytes, not %d", ref.key, len(object), ref.Size)
	} else if sumOf(object) != ref.SHA256 {
		return fmt.Errorf("%s: %w", ref.key, errAltered)
	}
	return nil
}

func (ref *segmentRef) events(object []byte, yield func(pg.StoredEvent, error) bool) {
	fail := func(err error) { yield(pg.StoredEvent{}, fmt.Errorf("%s: %w", ref.key, err)) }
	content, stop, err := ref.content(object)
	if err != nil {
		fail(err)
		return
	}
	defer stop()
	lines := bufio.NewReader(content)
	n, last := 0, int64(0)
	for {
		text, err := lines.ReadBytes('\n')
		if err == io.EOF && len(text) == 0 {
			break
		} else if err != nil {
			fail(err)
			return
		}
		e, err := parseLine(text)
		switch {
		case err != nil:
		case e.ID <= last || e.ID < ref.First || e.ID > ref.Last:
			err = fmt.Errorf("event %d is out of order", e.ID)
		case ref.stream != "" && e.Stream != ref.stream:
			err = fmt.Errorf("event %d is of another stream", e.ID)
		}
		if err != nil {
			fail(err)
			return
		}
		n++
		last = e.ID
		e.Namespace = ref.namespace
		if !yield(e, nil) {
			return
		}
	}
	if ref.Events != uncounted && n != ref.Events {
		fail(fmt.Errorf("it has %d events, not %d", n, ref.Events))
	}
}

// content decompresses small segments at once, since many may be open together,
// and each decompressor has a window.
func (ref *segmentRef) content(object []byte) (content io.Reader, stop func(), err error) {
	decoder, err := newDecoder(object)
	if err != nil {
		return nil, nil, err
	}
	if ref.Bytes > window/2 {
		return decoder, decoder.Close, nil
	}
	defer decoder.Close()
	all, err := io.ReadAll(decoder)
	return bytes.NewReader(all), func() {}, err
}
