//go:build small

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// A program that is built with the tag small has no clients of brokers, object
// storage and key services. They are most of what there is to compile, and make up
// need not wait for them.

func newRelay(*app) *cobra.Command {
	return newMissing("relay", "Write what is published to Redis or NATS")
}

func newImport(*app) *cobra.Command {
	return newMissing("import", "Publish what Redis or NATS has from other databases")
}

func newArchive(*app) *cobra.Command {
	return newMissing("archive", "Keep events in object storage, and get them back")
}

func newMissing(name, short string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              short + " (not in this build)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("this program was built small, without clients of brokers and object storage"), "run: make build"}
		},
	}
}
