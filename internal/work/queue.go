package work

import (
	"slices"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/logwatch"
	"github.com/posthorn/posthorn/internal/waitqueue"
)

// Queues are the wait queues of workers and requests that wait for jobs: one queue for
// each set of tags in a namespace, see [QueueName].
type Queues = waitqueue.Queues[string]

// regularly is the interval in which waiters claim without news: claims also return jobs
// whose leases have expired. It is a variable for tests, which set it before they begin.
var regularly = time.Second

// NewQueues returns queues that are woken by a watcher. The caller must close them.
func NewQueues(watch *logwatch.Watcher) *Queues {
	return waitqueue.New[string](regularly, func() (<-chan struct{}, func()) { return watch.Follow(logwatch.Jobs) })
}

// QueueName returns the key of the queue for jobs that have any of the tags. It is unique,
// since tags have no control characters.
func QueueName(namespace string, tags []string) string {
	tags = slices.Clone(tags)
	slices.Sort(tags)
	return namespace + "\n" + strings.Join(slices.Compact(tags), "\n")
}
