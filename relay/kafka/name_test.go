package kafka

import (
	"strings"
	"testing"
)

func TestNamesOfTopics(t *testing.T) {
	t.Parallel()
	n := names{"posthorn", "shop"}
	for stream, topic := range map[string]string{
		"orders": "posthorn.shop.orders", "a.b": "posthorn.shop.a.b", "order_items": "posthorn.shop.order_items",
		"user:1": "posthorn.shop.user_3A1", "_": "posthorn.shop._", "_3A": "posthorn.shop._5F3A", "_:": "posthorn.shop.__3A",
		"_5F5F": "posthorn.shop._5F5F5F", "_5:": "posthorn.shop._5_3A", "ü": "posthorn.shop._C3_BC",
	} {
		if got := n.topic(stream); got != topic {
			t.Errorf("the topic of %q is %s, want %s", stream, got, topic)
		}
		if got, ours := n.stream(topic); got != stream || !ours {
			t.Errorf("the stream of %s is %q %v, want %q", topic, got, ours, stream)
		}
	}
	long := n.topic(strings.Repeat("x", 255))
	if stream, ours := n.stream(long); len(long) != maxName || stream != "" || !ours {
		t.Errorf("a long name is %s, of %q %v", long, stream, ours)
	}
	for _, topic := range []string{"posthorn.shop.", "posthorn.other.orders", "orders", "posthorn.shop.a~"} {
		if stream, ours := n.stream(topic); ours {
			t.Errorf("topic %s is taken for that of %q", topic, stream)
		}
	}
}
