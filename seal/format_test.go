package seal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/seal"
)

func TestSealedPayloadIsJSONOfKnownSize(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.sealer(seal.Config{})
	for _, size := range []int{0, 1, 2, 3, 1000, 1 << 20} {
		plain := bytes.Repeat([]byte("x"), size)
		sealed, err := s.Seal(t.Context(), patients, plain)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(sealed) || !seal.IsSealed(sealed) || len(sealed) != seal.SealedSize(size) || size > 2 && bytes.Contains(sealed, plain) {
			t.Errorf("%d bytes are sealed as %.100s (%d bytes)", size, sealed, len(sealed))
		}
		opened, err := s.Open(t.Context(), patients, sealed)
		if err != nil || opened == nil || !bytes.Equal(opened, plain) {
			t.Errorf("%d bytes came back as %d: %v", size, len(opened), err)
		}
	}
}

func TestAnAlteredByteIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.sealer(seal.Config{})
	sealed := w.seal(s)
	for i := range sealed {
		for mask := 1; mask < 256; mask++ {
			altered := bytes.Clone(sealed)
			altered[i] ^= byte(mask)
			if err := opens(s.Opener, patients, altered); err == nil {
				t.Fatalf("opens with byte %d altered: %s", i, altered)
			}
		}
		for name, altered := range map[string][]byte{
			"cut":      sealed[:i],
			"cut off":  sealed[i+1:],
			"without":  append(bytes.Clone(sealed[:i]), sealed[i+1:]...),
			"repeated": append(bytes.Clone(sealed[:i+1]), sealed[i:]...),
		} {
			if err := opens(s.Opener, patients, altered); err == nil {
				t.Fatalf("opens %s at %d: %s", name, i, altered)
			}
		}
	}
}

func TestJSONMayGainWhiteSpaceButNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.sealer(seal.Config{})
	sealed := string(w.seal(s))
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(sealed), " ", "\t"); err != nil {
		t.Fatal(err)
	}
	w.mustOpen(s.Opener, indented.Bytes())
	w.mustOpen(s.Opener, []byte(" \n{ \"posthorn_sealed\" :\r\n"+strings.TrimPrefix(sealed, `{"posthorn_sealed":`)+"\t"))
	for name, altered := range map[string]string{
		"nothing":          "",
		"null":             "null",
		"another member":   strings.Replace(sealed, "{", `{"a":1,`, 1),
		"a member after":   strings.Replace(sealed, "}", `,"a":1}`, 1),
		"another case":     strings.Replace(sealed, "posthorn", "Posthorn", 1),
		"an escape":        strings.Replace(sealed, "posthorn", `\u0070osthorn`, 1),
		"a line end":       strings.Replace(sealed, `:"`, ":\"\n", 1),
		"padding":          strings.Replace(sealed, `"}`, `="}`, 1),
		"an array":         "[" + sealed + "]",
		"two":              sealed + sealed,
		"an empty message": `{"posthorn_sealed":""}`,
	} {
		if err := opens(s.Opener, patients, []byte(altered)); !errors.Is(err, seal.ErrNotSealed) || seal.IsSealed([]byte(altered)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPayloadBelongsToItsStreamAndKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.sealer(seal.Config{RotateCount: 1})
	streams := []seal.Stream{{Namespace: "ab", Name: "c"}, {Namespace: "a", Name: "bc"}, {Namespace: "abc", Name: "d"}, {Namespace: "AB", Name: "c"}}
	for _, from := range streams {
		sealed, err := s.Seal(t.Context(), from, payload)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range streams {
			w.seal(s) // so that there is a key
			if err := opens(s.Opener, to, sealed); (err == nil) != (from == to) {
				t.Errorf("sealed for %s, opened as %s: %v", from, to, err)
			}
		}
	}
	first, second := w.seal(s), w.seal(s)
	if seal.KeyVersion(first) == seal.KeyVersion(second) {
		t.Fatal("there was no rotation")
	}
	moved := seal.Relabel(first, byte(seal.KeyVersion(second)))
	if err := opens(s.Opener, patients, moved); !errors.Is(err, seal.ErrAltered) {
		t.Errorf("opened with another version's key: %v", err)
	}
}

// An attacker who can write to the store gives a stream the key of another stream.
func TestAWrappedKeyBelongsToItsStreamAndVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.seal(w.sealer(seal.Config{}))
	ring, err := w.keys.Load(t.Context(), patients)
	if err != nil {
		t.Fatal(err)
	}
	stolen := ring.Keys[0]
	other := seal.Stream{Namespace: "clinic", Name: "public"}
	if err := w.keys.Add(t.Context(), other, stolen); err != nil {
		t.Fatal(err)
	}
	sealed, err := w.sealer(seal.Config{}).Seal(t.Context(), other, payload)
	if err != nil || seal.KeyVersion(sealed) != 2 {
		t.Errorf("sealed with key %d, %v: the first is of another stream", seal.KeyVersion(sealed), err)
	}
	stolen.Version = 2
	if err := w.keys.Add(t.Context(), patients, stolen); err != nil {
		t.Fatal(err)
	}
	if version := seal.KeyVersion(w.seal(w.sealer(seal.Config{}))); version != 1 {
		t.Errorf("sealed with key %d, which has the number of another", version)
	}
}
