// Package idle has the tests of what processes cost that have nothing to do.
package idle
