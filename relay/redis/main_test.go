package redis_test

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) {
	goredis.SetLogger(&logging.VoidLogger{}) // it would log each server that a test kills
	posthorntest.Main(m)
}
