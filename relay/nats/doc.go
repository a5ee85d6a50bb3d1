// Package nats relays streams to NATS JetStream, and reads them there.
package nats
