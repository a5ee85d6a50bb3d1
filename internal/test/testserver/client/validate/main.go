// Command validate says what is wrong with an OpenAPI document. Each of its two
// validators finds what the other does not look at.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/speakeasy-api/openapi/openapi"
)

func main() {
	faults := append(bySchema(os.Args[1]), byRules(os.Args[1])...)
	for _, fault := range faults {
		fmt.Println(fault)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// bySchema checks the document, and the schemas in it by the schema of schemas.
func bySchema(path string) []error {
	file, err := os.Open(path)
	if err != nil {
		return []error{err}
	}
	defer file.Close()
	ctx := context.Background()
	document, faults, err := openapi.Unmarshal(ctx, file)
	if err != nil {
		return append(faults, err)
	}
	more, err := document.ResolveAllReferences(ctx, openapi.ResolveAllOptions{OpenAPILocation: path})
	if err != nil {
		more = append(more, err)
	}
	return append(faults, more...)
}

// byRules checks what is between the parts: parameters of paths, unknown fields.
func byRules(path string) []error {
	document, err := openapi3.NewLoader().LoadFromFile(path)
	if err == nil {
		err = document.Validate(context.Background())
	}
	if err != nil {
		return []error{err}
	}
	return nil
}
