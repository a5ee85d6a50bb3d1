// Command build builds the S3 server that tests run, unless it is there.
package main

import (
	"fmt"
	"os"

	"github.com/posthorn/posthorn/internal/tests3"
)

func main() {
	if _, err := tests3.Build(); err != nil {
		fmt.Fprintln(os.Stderr, "deps:", err)
	}
}
