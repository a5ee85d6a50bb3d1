package page

import (
	"context"
	"time"
)

// mostNamespaces bounds the list of namespaces to choose from. With more, people change
// the address.
const mostNamespaces = 200

// allNamespaces lists the namespaces that the caller may look at.
func (p *Pages) allNamespaces(ctx context.Context, c Caller) ([]string, error) {
	if c.Bound {
		return []string{c.Namespace}, nil
	}
	return p.namespaces.Get(ctx, "", func(ctx context.Context) ([]string, time.Time, error) {
		found, err := c.Admin.Namespaces(ctx)
		var names []string
		for _, n := range found[:min(len(found), mostNamespaces)] {
			names = append(names, n.Name)
		}
		return names, time.Now().Add(5 * time.Second), err
	})
}
