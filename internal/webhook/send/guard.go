package send

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
)

// guard refuses connections to addresses that are not public. It sees the address that is connected to, after the name was
// resolved: a name that resolves to another address the next time gains nothing.
type guard struct{ allow []netip.Prefix }

func newGuard(allow []netip.Prefix) guard {
	g := guard{}
	for _, p := range allow {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		g.allow = append(g.allow, p.Masked())
	}
	return g
}

func (g guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("the address %q cannot be checked", address)
	}
	return g.check(at.Addr())
}

func (g guard) check(address netip.Addr) error {
	address = address.WithZone("").Unmap()
	behind := embedded(address)
	if kind := kindOf(behind); kind != "" && !g.allows(address) && !g.allows(behind) {
		return refusedError{address, kind}
	}
	return nil
}

func (g guard) allows(address netip.Addr) bool {
	return slices.ContainsFunc(g.allow, func(p netip.Prefix) bool { return p.Contains(address) })
}

// refusedError is a connection that was not made.
type refusedError struct {
	address netip.Addr
	kind    string
}

func (e refusedError) Error() string {
	return fmt.Sprintf("the address %s is not public (%s), and --webhook-allow does not name it", e.address, e.kind)
}

// Refused says why a process sends nothing to a URL unless --webhook-allow names its address; "" if it sends. The host must be
// an address or localhost: other names are resolved for each request, and may have other addresses then.
func Refused(address string) string {
	to, err := url.Parse(address)
	if err != nil {
		return ""
	}
	host := to.Hostname()
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	at, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	var refused refusedError
	if !errors.As(newGuard(nil).check(at), &refused) {
		return ""
	}
	return fmt.Sprintf("%s is not public (%s), and posthorn up and posthorn serve send to it only with --webhook-allow %s",
		to.Hostname(), refused.kind, refused.address)
}

var (
	publicIPv6 = netip.MustParsePrefix("2000::/3")
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
)

// embedded is the IPv4 address that a NAT64 gateway connects to. In networks without IPv4 every IPv4 host has such an
// address.
func embedded(address netip.Addr) netip.Addr {
	if !nat64.Contains(address) {
		return address
	}
	raw := address.As16()
	return netip.AddrFrom4([4]byte(raw[12:]))
}

// kindOf names the kind of an address that is not public.
func kindOf(address netip.Addr) string {
	for _, s := range special {
		if s.prefix.Contains(address) {
			return s.kind
		}
	}
	if address.Is6() && !publicIPv6.Contains(address) {
		return "not assigned"
	}
	return ""
}

type specialAddresses struct {
	prefix netip.Prefix
	kind   string
}

// special are IANA's special-purpose addresses, and those of clouds for their virtual machines. The metadata services of
// other clouds have link-local, shared or private addresses.
var special = []specialAddresses{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("168.63.129.16/32"), "the platform of Azure"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "protocols"},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},

	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "private NAT64"},
	{netip.MustParsePrefix("100::/64"), "discarded"},
	{netip.MustParsePrefix("2001::/23"), "protocols"}, // Teredo among them, which embeds IPv4 addresses
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},
	{netip.MustParsePrefix("2002::/16"), "6to4"}, // embeds IPv4 addresses
	{netip.MustParsePrefix("3fff::/20"), "documentation"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}
