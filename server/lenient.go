package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// lenient decodes a body that may have fields which we do not know.
//
// The content type must be said: a page of another origin cannot have a browser
// send this one without asking, and it can send bodies that have none.
func lenient(contentType string, body []byte, into any) error {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "application/json" {
		return newProblem(http.StatusUnsupportedMediaType, "the body is not said to be JSON", "Send Content-Type: application/json.")
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return badRequest("there is no body", "Send a JSON object.")
	}
	var wrongType *json.UnmarshalTypeError
	switch err := json.Unmarshal(body, into); {
	case errors.As(err, &wrongType) && wrongType.Field != "":
		return badRequest(fmt.Sprintf("%s is of another type: it came as %s", wrongType.Field, wrongType.Value), "/docs shows what it can be.")
	case errors.As(err, &wrongType):
		return badRequest("the body is not an object", "Send a JSON object.")
	case err != nil:
		return badRequest("the body is not what it should be: "+err.Error(), "/docs shows what is understood.")
	case hasNUL(body):
		return badRequest(`the body contains \u0000, which Postgres cannot hold in text`,
			"Remove the zero character, or encode the value, for instance as base64.")
	}
	return nil
}

// hasNUL looks for \u0000 in a JSON document, where its backslash is not itself
// escaped.
func hasNUL(document []byte) bool {
	for {
		at := bytes.IndexByte(document, '\\')
		if at < 0 || at+1 >= len(document) {
			return false
		}
		if bytes.HasPrefix(document[at+1:], []byte("u0000")) {
			return true
		}
		document = document[at+2:]
	}
}

// splitTags reads tags as they are written here: separated by commas.
func splitTags(text string) ([]string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, badRequest("tags is missing", "Give at least one tag; several are separated by commas.")
	}
	tags := strings.Split(text, ",")
	for i := range tags {
		if tags[i] = strings.TrimSpace(tags[i]); tags[i] == "" {
			return nil, badRequest("tags has an empty one in it", "Separate tags by single commas.")
		}
	}
	return tags, nil
}

func joinTags(tags []string) string { return strings.Join(tags, ",") }
