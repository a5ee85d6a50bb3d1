package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/posthorn/posthorn/internal/test/testcost"
)

// profileByTest reads a profile of the processor that go test has written, and sums its
// samples by test: by the label of the goroutine, or by the test function on its stack.
// The empty name stands for samples of no single test, such as the garbage collector's.
func profileByTest(file string) (map[string]time.Duration, error) {
	packed, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer packed.Close()
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		return nil, err
	}
	p := &profile{lines: map[uint64][]uint64{}, functions: map[uint64]uint64{}}
	if err := p.read(text); err != nil {
		return nil, err
	}
	byTest := map[string]time.Duration{}
	for _, s := range p.samples {
		byTest[p.testOf(s)] += s.took
	}
	return byTest, nil
}

// profile is the part that is needed of the format profile.proto, of which
// github.com/google/pprof/proto has the description: the numbers below are its fields.
type profile struct {
	strings   []string
	samples   []sample
	lines     map[uint64][]uint64 // functions of a location, several if some are inlined
	functions map[uint64]uint64   // name of a function, an index of strings
}

type sample struct {
	locations []uint64 // the leaf comes first
	took      time.Duration
	labels    map[uint64]uint64 // indices of strings
}

func (p *profile) read(text []byte) error {
	return eachField(text, func(field, _ uint64, content []byte) error {
		switch field {
		case 2:
			return p.readSample(content)
		case 4:
			return p.readLocation(content)
		case 5:
			id, name, err := firstNumbers(content)
			p.functions[id] = name
			return err
		case 6:
			p.strings = append(p.strings, string(content))
		}
		return nil
	})
}

func (p *profile) readSample(text []byte) error {
	s := sample{labels: map[uint64]uint64{}}
	var values []uint64 // the number of samples, and the nanoseconds
	err := eachField(text, func(field, number uint64, content []byte) (err error) {
		switch field {
		case 1:
			s.locations, err = appendNumbers(s.locations, number, content)
		case 2:
			values, err = appendNumbers(values, number, content)
		case 3:
			var key, value uint64
			key, value, err = firstNumbers(content)
			s.labels[key] = value
		}
		return err
	})
	if err == nil && len(values) != 2 {
		err = errProfile
	}
	if err == nil {
		s.took = time.Duration(values[1])
		p.samples = append(p.samples, s)
	}
	return err
}

func (p *profile) readLocation(text []byte) error {
	var id uint64
	var functions []uint64
	err := eachField(text, func(field, number uint64, content []byte) error {
		switch field {
		case 1:
			id = number
		case 4:
			function, _, err := firstNumbers(content)
			functions = append(functions, function)
			return err
		}
		return nil
	})
	p.lines[id] = functions
	return err
}

// testFunction matches the function of a test, or one that is written inside it.
var testFunction = regexp.MustCompile(`\.(Test[A-Z]\w*)(?:\.func[0-9.]+)?$`)

func (p *profile) testOf(s sample) string {
	for key, value := range s.labels {
		if p.text(key) == testcost.Label {
			return p.text(value)
		}
	}
	for i := len(s.locations) - 1; i >= 0; i-- {
		for _, function := range p.lines[s.locations[i]] {
			if match := testFunction.FindStringSubmatch(p.text(p.functions[function])); match != nil {
				return match[1]
			}
		}
	}
	return ""
}

func (p *profile) text(index uint64) string {
	if index >= uint64(len(p.strings)) {
		return ""
	}
	return p.strings[index]
}

var errProfile = errors.New("not a profile of the processor")

// eachField calls do for each field of a protobuf message, with its number or its
// content.
func eachField(text []byte, do func(field, number uint64, content []byte) error) error {
	for in := bytes.NewReader(text); in.Len() > 0; {
		key, err := binary.ReadUvarint(in)
		if err != nil {
			return err
		}
		number, err := binary.ReadUvarint(in)
		if err != nil {
			return err
		}
		var content []byte
		switch key & 7 {
		case 0:
		case 2:
			if number > uint64(in.Len()) {
				return errProfile
			}
			content = make([]byte, number)
			_, _ = io.ReadFull(in, content) // there is enough
		default: // the format has numbers and contents only
			return errProfile
		}
		if err := do(key>>3, number, content); err != nil {
			return err
		}
	}
	return nil
}

// firstNumbers returns the numbers of the first two fields of a message.
func firstNumbers(text []byte) (one, two uint64, err error) {
	err = eachField(text, func(field, number uint64, _ []byte) error {
		switch field {
		case 1:
			one = number
		case 2:
			two = number
		}
		return nil
	})
	return one, two, err
}

// appendNumbers reads a repeated number, which is packed or not.
func appendNumbers(all []uint64, number uint64, content []byte) ([]uint64, error) {
	if content == nil {
		return append(all, number), nil
	}
	for in := bytes.NewReader(content); in.Len() > 0; {
		number, err := binary.ReadUvarint(in)
		if err != nil {
			return nil, err
		}
		all = append(all, number)
	}
	return all, nil
}
