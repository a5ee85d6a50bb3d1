package seal_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/posthorn/posthorn/seal"
	"github.com/posthorn/posthorn/seal/keeper"
	"github.com/posthorn/posthorn/seal/sealtest"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "seal.key")
	keys := &sealtest.Keys{}
	payload := []byte(`{"name":"Zoë"}`)

	if err := keeper.NewKeyFile(path); err != nil { // once
		log.Fatal(err)
	}
	local, err := keeper.Open(ctx, "file://"+path)
	if err != nil {
		log.Fatal(err)
	}
	defer local.Close()

	sealer := seal.NewSealer(keys, seal.Keepers{"": local}, seal.Config{})
	defer sealer.Close()
	patients := seal.Stream{Namespace: "clinic", Name: "patients"}
	sealed, err := sealer.Seal(ctx, patients, payload)
	if err != nil {
		log.Fatal(err)
	}
	opened, err := sealer.Open(ctx, patients, sealed)
	if err != nil {
		log.Fatal(err)
	}

	_, err = sealer.Open(ctx, seal.Stream{Namespace: "clinic", Name: "visitors"}, sealed)
	fmt.Println(string(opened), err)
	// Output: {"name":"Zoë"} open payload of clinic/visitors: key 1: the key does not exist or was destroyed
}
