package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/posthorn/posthorn"
)

// An event that one caller claims from a group, or skips because it may not read it, is
// lost for all other callers. So a caller may use a group only if the group hands out no
// events of streams that are hidden from the caller.

// checkPublish refuses to publish to a stream that is hidden from the caller.
func (c caller) checkPublish(stream string) error {
	if c.mayRead(stream) {
		return nil
	}
	return newProblem(http.StatusForbidden, "the token does not name the restricted stream "+stream,
		"Use one that does: posthorn tokens create NAME --scope publish --stream "+stream+".")
}

// checkClaim refuses a group that may hand out events of hidden streams.
func (s *Server) checkClaim(ctx context.Context, c caller, group string) error {
	return refuseHidden(c, func() ([]string, error) {
		return s.admin(c).GroupStreams(ctx, group, c.hidden)
	})
}

// checkLease refuses a lease that has events of hidden streams, and every lease of a
// group that checkClaim refuses. Without this check a caller could settle events that it
// may not read, by guessing the number of the lease.
func (s *Server) checkLease(ctx context.Context, c caller, lease int64) error {
	return refuseHidden(c, func() ([]string, error) {
		found, err := s.admin(c).LeaseStreams(ctx, lease, c.hidden)
		if err != nil || len(found) > 0 {
			return found, err
		}
		group, err := s.admin(c).LeaseGroup(ctx, lease)
		if err != nil {
			return nil, err
		}
		return s.admin(c).GroupStreams(ctx, group, c.hidden)
	})
}

// checkDefine is checkClaim for creating or changing a group.
func (s *Server) checkDefine(ctx context.Context, c caller, group string) error {
	return unlessNew(s.checkClaim(ctx, c, group))
}

// checkRemove is checkClaim for deleting a group or one of its subscriptions. It also
// refuses if the group or subscription has retries, messages or dead letters of hidden
// streams, which would be deleted too.
func (s *Server) checkRemove(ctx context.Context, c caller, group string, subscription *string) error {
	return refuseHidden(c, func() ([]string, error) {
		found, err := s.admin(c).GroupStreams(ctx, group, c.hidden)
		if err != nil || len(found) > 0 {
			return found, err
		}
		return s.admin(c).HeldStreams(ctx, group, c.hidden, subscription)
	})
}

// unlessNew ignores that a group does not exist: a new group has no events that could be
// lost.
func unlessNew(err error) error {
	if errors.Is(err, posthorn.ErrNotFound) {
		return nil
	}
	return err
}

// refuseHidden returns an error if find returns hidden streams. It does not call find if
// no stream is hidden from the caller.
func refuseHidden(c caller, find func() ([]string, error)) error {
	if len(c.hidden) == 0 {
		return nil
	}
	found, err := find()
	if err == nil && len(found) > 0 {
		err = errHiddenClaim()
	}
	return err
}

func errHiddenClaim() error {
	return newProblem(http.StatusForbidden, "the group hands out or holds events of restricted streams that the token does not name",
		"Use a token that names them, or a group whose subscriptions match other streams only.")
}
