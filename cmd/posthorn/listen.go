package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/posthorn/posthorn"
)

// listen occupies the address. Commands call it first, so that an occupied address is
// reported at once.
func listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err == nil {
		return listener, nil
	}
	hint := "--listen takes an address and a port, such as 127.0.0.1:8080 or :8080"
	if errors.Is(err, syscall.EADDRINUSE) {
		hint = "stop the program that uses it, or choose another port, such as --listen 127.0.0.1:8081"
	}
	if errors.Is(err, syscall.EACCES) {
		hint = "ports below 1024 need root; choose another one"
	}
	return nil, hintError{fmt.Errorf("cannot listen on %s: %w", address, withoutAddress(err)), hint}
}

// withoutAddress removes the address from an error of the network.
func withoutAddress(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}

// access tells which requests an address answers.
type access string

const (
	accessTokens    access = "tokens are required"
	accessLocal     access = "open to everyone on this machine, until there is a token: posthorn tokens create"
	accessEverybody access = "OPEN TO EVERYONE who reaches it, until there is a token: posthorn tokens create"
)

// accessAt returns the access at an address. Without tokens it refuses an address that
// other machines can reach, unless insecure is set.
func accessAt(ctx context.Context, ph *posthorn.Client, address net.Addr, insecure bool) (access, error) {
	required, err := ph.Admin().TokensRequired(ctx)
	switch {
	case err != nil:
		return "", err
	case required:
		return accessTokens, nil
	case isLoopback(address):
		return accessLocal, nil
	case insecure:
		return accessEverybody, nil
	}
	return "", hintError{
		fmt.Errorf("%w to listen on %s: there is no token yet, and everyone who reaches it could do everything", posthorn.ErrRefused, address),
		"make a token first, which every request must carry from then on: posthorn tokens create NAME --scope all; or listen on 127.0.0.1; or allow it with --insecure",
	}
}

func isLoopback(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// urlOf is the URL of a listener on this machine.
func urlOf(address net.Addr, encrypted bool) string {
	scheme := "http://"
	if encrypted {
		scheme = "https://"
	}
	text := address.String()
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		text = "localhost:" + strconv.Itoa(tcp.Port)
	}
	return scheme + text
}
