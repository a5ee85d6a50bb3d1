package archive_test

import (
	"os"
	"testing"

	"github.com/posthorn/posthorn/internal/test/tests3"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) {
	tests3.Setenv()
	switch {
	case os.Getenv(asArchiver) != "":
		beArchiver()
	case os.Getenv(asReplayer) != "":
		beReplayer()
	}
	posthorntest.Main(m)
}
