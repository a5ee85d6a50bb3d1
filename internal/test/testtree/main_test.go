package testtree_test

import (
	"log"
	"os"
	"testing"
)

// The tests name files as they stand in the tree.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}
