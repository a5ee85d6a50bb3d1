package guarantee

import (
	"fmt"
	"testing"
)

// claim caches the names of a few streams, and looks up the others.
func TestClaimNamesEveryStream(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.exec("select posthorn.define_namespace('other')")
	var want []string
	for i := range 40 {
		stream := fmt.Sprintf("stream-%02d", i)
		s.exec("select posthorn.publish('other', 'order.placed', stream => $1)", stream) // takes an id in between
		s.exec("select posthorn.publish('default', 'order.placed', stream => $1)", stream)
		want = append(want, stream)
	}
	equal(t, "streams", column[string](s, "select stream from posthorn.claim('default', $1, 'worker', 40)", group), want)
}
