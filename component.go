package posthorn

import (
	"context"
	"fmt"
	"slices"

	"github.com/posthorn/posthorn/internal/observe"
)

// component is a group, projection, relay, import or job handler that [Client.Run] runs.
type component interface {
	registered() *registration
	// run runs the component until stop ends. Work in progress may continue until ctx
	// ends.
	run(ctx, stop context.Context) error
}

// registration is the common part of all components.
type registration struct {
	client  *Client
	label   string // unique among the components of a client, see GroupStats.Group
	metrics *observe.Group
	err     error // the registration is invalid: run returns this error
}

func (r *registration) registered() *registration { return r }

// register adds a component, also to a Run that is running.
func (c *Client) register(added component) {
	r := added.registered()
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.components, func(other component) bool { return other.registered().label == r.label }) {
		r.err = invalid(fmt.Sprintf("%q is registered twice", r.label),
			"Register each group, projection, relay, import and job handler once, under a name of its own.")
		r.label += " (duplicate)"
	}
	c.components = append(c.components, added)
	close(c.changed)
	c.changed = make(chan struct{})
}
