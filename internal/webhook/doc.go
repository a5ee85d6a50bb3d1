// Package webhook sends events to the webhooks of all namespaces. Of all processes one
// leads those of a namespace at a time ([worker.Lead]); so the limits of each endpoint
// hold without a write for each request.
//
// The leader reads windows of the log, with the webhooks that want each event, and gives
// each endpoint its deliveries. An endpoint has a queue, as many requests under way as it
// allows, and its pace. A delivery whose endpoint cannot take it soon is set aside: it
// becomes a row of retries, and its window need not wait for it. So does a request that
// has no answer after a second. The rows of an endpoint are read again when it has room.
//
// Results are recorded in batches, with the windows that are done. Package send makes the
// requests. The functions of the schema decide when a failed event is tried again, when
// an endpoint rests, and when it is disabled; they refuse a process that has lost the lead.
package webhook
