package posthorn

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestSourcesAreFoundByScheme(t *testing.T) {
	t.Parallel()
	var got SourceConfig
	RegisterSource(func(_ context.Context, config SourceConfig) (Source, error) {
		got = config
		return nil, nil
	}, "test-source")
	if _, err := openSource(t.Context(), "test-source://host/x?y=z", "shop"); err != nil {
		t.Fatal(err)
	}
	if got.URL.Host != "host" || got.Namespace != "shop" {
		t.Errorf("the source was given %+v", got)
	}
	for _, url := range []string{"amqp://u:secret@host", "amqp://u:secret@%%", "redis"} {
		if _, err := openSource(t.Context(), url, "shop"); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "secret") || Hint(err) == "" {
			t.Errorf("%s: %v", url, err)
		}
	}
}
