package send

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

func TestOnlyPublicAddressesAreAllowed(t *testing.T) {
	t.Parallel()
	g := newGuard(nil)
	for _, refused := range []string{
		"0.0.0.0", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.0.1", "168.63.129.16",
		"169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1",
		"198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1",
		"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::1",
		"3fff::1", "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fe80::1%eth0", "::1%lo", "fec0::1", "ff02::1",
	} {
		if err := g.check(netip.MustParseAddr(refused)); err == nil {
			t.Errorf("%s is allowed", refused)
		}
	}
	for _, allowed := range []string{
		"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "128.0.0.1", "168.63.129.17", "172.15.255.255", "172.32.0.0",
		"192.0.1.1", "198.17.255.255", "198.20.0.0", "223.255.255.255", "::ffff:1.1.1.1", "64:ff9b::101:101", "2001:200::1", "2606:4700::1111",
		"2a00::1", "2600::%eth0",
	} {
		if err := g.check(netip.MustParseAddr(allowed)); err != nil {
			t.Error(err)
		}
	}
}

func TestConfiguredAddressesAreAllowed(t *testing.T) {
	t.Parallel()
	g := newGuard([]netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd12::/16"), netip.MustParsePrefix("::ffff:192.168.7.0/120"),
	})
	for address, allowed := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::a01:203": true, "fd12::1": true, "fd12::1%eth0": true, "192.168.7.9": true,
		"10.2.0.1": false, "64:ff9b::a02:1": false, "fd13::1": false, "192.168.8.1": false, "127.0.0.1": false,
	} {
		equal(t, address, g.check(netip.MustParseAddr(address)) == nil, allowed)
	}
}

// A person who makes a webhook is told of an address that will be refused, as far as it is known then.
func TestRefusedIsToldBefore(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"http://127.0.0.1:9000/hooks": "127.0.0.1 is not public (loopback), and posthorn up and posthorn serve send to it only with --webhook-allow 127.0.0.1",
		"http://LOCALHOST/":           "LOCALHOST is not public (loopback), and posthorn up and posthorn serve send to it only with --webhook-allow 127.0.0.1",
		"https://[fd12::1]:8443/a":    "fd12::1 is not public (private), and posthorn up and posthorn serve send to it only with --webhook-allow fd12::1",
		"https://[::ffff:10.0.0.1]/":  "::ffff:10.0.0.1 is not public (private), and posthorn up and posthorn serve send to it only with --webhook-allow 10.0.0.1",
		"https://1.1.1.1/":            "",
		"https://crm.example/hooks":   "",
		"https://127.0.0.1.example/":  "",
		"":                            "",
		"http://[::1":                 "",
	} {
		equal(t, address, Refused(address), want)
	}
}

// However an address is written, the connection is refused.
func TestPrivateAddressesAreNotReached(t *testing.T) {
	t.Parallel()
	port := refusing(t, "127.0.0.1:0")
	refusing(t, "[::1]:"+port)
	c := New(Config{})
	for _, host := range []string{
		"127.0.0.1", "127.1", "0177.0.0.1", "0x7f000001", "2130706433", "0", "0.0.0.0", "127.0.0.1.", "localhost", "LOCALHOST", "localhost.",
		"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]", "[::127.0.0.1]", "①②⑦.⓪.⓪.①", "[::1%25lo]", "[64:ff9b::7f00:1]",
	} {
		_, err := c.Send(t.Context(), Request{URL: "http://" + host + ":" + port, Secrets: []string{secretA}, Events: []pg.Event{event}, At: time.Now()})
		if err == nil {
			t.Errorf("%s was reached", host)
		}
	}
}

// refusing listens at an address that nobody may connect to.
func refusing(t *testing.T, address string) (port string) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("this machine has no %s: %v", address, err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Errorf("%s was connected to", conn.LocalAddr())
			_ = conn.Close()
		}
	}()
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return port
}

// A name that resolves to an address which is allowed, and then to another one, is refused the second time.
func TestRebindingIsRefused(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 10)
	e := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.Host }))
	t.Cleanup(e.Close)
	_, port, _ := net.SplitHostPort(e.Listener.Addr().String())
	refusing(t, "127.0.0.2:"+port)

	var lookups atomic.Int32
	c := New(Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	c.dialer.Resolver = resolver(t, func() [4]byte {
		if lookups.Add(1) == 1 {
			return [4]byte{127, 0, 0, 1}
		}
		return [4]byte{127, 0, 0, 2}
	})
	r := Request{URL: "http://hooks.example:" + port + "/", Secrets: []string{secretA}, Events: []pg.Event{event}, At: time.Now()}
	if _, err := c.Send(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	equal(t, "host", <-reached, "hooks.example:"+port)
	c.Close() // the next request connects again
	_, err := c.Send(t.Context(), r)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.2 is not public") {
		t.Errorf("the error is %v", err)
	}
}

// resolver asks a name server of ours, which answers every question for an IPv4 address.
func resolver(t *testing.T, answer func() [4]byte) *net.Resolver {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		packet := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(packet)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(reply(packet[:n], answer), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// reply writes a DNS answer: RFC 1035, section 4.
func reply(query []byte, answer func() [4]byte) []byte {
	end := 12
	for query[end] != 0 { // the labels of the name
		end += int(query[end]) + 1
	}
	question := query[12 : end+5]
	out := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	if kind := binary.BigEndian.Uint16(query[end+1:]); kind != 1 {
		return out
	}
	out[7] = 1
	address := answer()
	return append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, address[0], address[1], address[2], address[3])
}

func ExampleClient_refused() {
	_, err := New(Config{}).Send(context.Background(), Request{
		URL: "http://169.254.169.254/latest/meta-data/", Secrets: []string{secretA}, Events: []pg.Event{event},
	})
	fmt.Println(err)
	// Output: the address 169.254.169.254 is not public (link-local), and --webhook-allow does not name it
}
