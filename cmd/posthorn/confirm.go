package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

var errDeclined = errors.New("nothing was changed")

// yesFlag adds --yes to a command that asks.
func yesFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("yes", false, "do not ask")
}

// confirm asks the user at the terminal, unless --yes was given.
func confirm(cmd *cobra.Command, yes bool, question string) error {
	if yes {
		return nil
	}
	if !isTerminal(cmd.InOrStdin()) {
		return usageError{errors.New(question + ": there is no terminal to ask at"), "confirm with --yes"}
	}
	if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "%s? [y/N] ", question); err != nil {
		return err
	}
	answer, err := bufio.NewReader(input{cmd.Context(), cmd.InOrStdin()}).ReadString('\n')
	if err != nil {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr()) // ends the line of the question
	}
	if err != nil && err != io.EOF {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errDeclined
	}
	return nil
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	// The null device is a character device too, and the input of services.
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
