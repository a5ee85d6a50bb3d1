// Command containers reads a Kubernetes manifest or a compose file as strictly as their own
// programs do, and prints the containers of Posthorn in it by name, as JSON. It is a module of its own, so
// that Posthorn does not need theirs.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
)

// container is a container, in the words of neither format.
type container struct {
	Args   []string
	Env    map[string]string // values are empty if they are secrets of the cluster
	Port   int32             // the only one; 0 without
	Probes []string          // such as :8080/healthz
	User   string            // empty for that of the image
	Grace  int64             // seconds after the signal; 0 for the default
}

func main() {
	log.SetFlags(0)
	read := map[string]func(string) (map[string]container, error){"kubernetes": kubernetes, "compose": compose}
	if len(os.Args) != 3 || read[os.Args[1]] == nil {
		log.Fatal("usage: containers kubernetes|compose FILE")
	}
	found, err := read[os.Args[1]](os.Args[2])
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s has no container", os.Args[2])
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		log.Fatal(err)
	}
}
