// Package idle has the tests that count the statements of idle processes.
package idle
