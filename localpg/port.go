package localpg

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// choosePort returns the given port, else the last one if it is free, else any free
// port.
func choosePort(given, last int) (int, error) {
	if given != 0 {
		if !portFree(given) {
			return 0, fmt.Errorf("port %d on 127.0.0.1 is in use by another program", given)
		}
		return given, nil
	}
	if last != 0 && portFree(last) {
		return last, nil
	}
	return freePort()
}

// freePort prefers ports below the ephemeral range. A port in that range could be
// taken by an outgoing connection while the server is down, and clients would not
// find the server at its old port.
func freePort() (int, error) {
	for range 100 {
		if port := 20000 + rand.IntN(12000); portFree(port) {
			return port, nil
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func portFree(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	listener.Close()
	return true
}
