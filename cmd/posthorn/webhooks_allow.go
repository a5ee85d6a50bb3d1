package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/posthorn/posthorn/internal/webhook/send"
)

// webhookGuard is what serve and up let webhooks reach.
func (f httpFlags) webhookGuard() (send.Config, error) {
	var config send.Config
	for _, text := range f.webhookAllow {
		prefix, err := netip.ParsePrefix(text)
		if address, isAddress := netip.ParseAddr(text); isAddress == nil && !strings.Contains(text, "/") {
			prefix, err = address.Prefix(address.BitLen())
		}
		if err != nil {
			return config, usageError{fmt.Errorf("--webhook-allow: %q is neither an address nor a network", text), "write it like 10.1.2.3 or 10.1.0.0/16"}
		}
		config.Allow = append(config.Allow, prefix)
	}
	return config, nil
}
