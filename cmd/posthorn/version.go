package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/schema"
)

type versionInfo struct {
	Version  string         `json:"version"`
	Commit   string         `json:"commit,omitempty"`
	Modified bool           `json:"modified,omitempty"` // built from a tree with uncommitted changes
	Go       string         `json:"go"`
	Platform string         `json:"platform"`
	Schema   schema.Version `json:"schema"`
}

func newVersion() *cobra.Command {
	cmd := about{
		use:     "version",
		short:   "Print the version of this binary and of its schema",
		example: "  posthorn version --json",
	}.command()
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := currentVersion()
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), v)
		}
		return printLine(cmd, "%s", v.line())
	}
	return cmd
}

func (v versionInfo) line() string {
	return fmt.Sprintf("posthorn %s, schema %s, %s, %s", v.Version, v.Schema, v.Go, v.Platform)
}

func currentVersion() versionInfo {
	v := versionInfo{
		Version:  "devel",
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Schema:   schema.Embedded(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
