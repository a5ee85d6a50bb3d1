// Package api is made by the generator.
package api
