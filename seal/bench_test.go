package seal_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/posthorn/posthorn/seal"
	"github.com/posthorn/posthorn/seal/sealtest"
)

var sizes = map[string]int{"200B": 200, "10KiB": 10 << 10}

func BenchmarkSeal(b *testing.B) {
	for name, size := range sizes {
		b.Run(name, func(b *testing.B) {
			s, plain := benchSealer(b), bytes.Repeat([]byte("x"), size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := s.Seal(context.Background(), patients, plain); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for name, size := range sizes {
		b.Run(name, func(b *testing.B) {
			s := benchSealer(b)
			sealed, err := s.Seal(context.Background(), patients, bytes.Repeat([]byte("x"), size))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := s.Open(context.Background(), patients, sealed); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func benchSealer(b *testing.B) *seal.Sealer {
	s := seal.NewSealer(&sealtest.Keys{}, seal.Keepers{"": newKeeper()}, seal.Config{})
	b.Cleanup(s.Close)
	return s
}
