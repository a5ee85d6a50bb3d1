package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/op"
)

// tool is an operation as clients see it.
type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Input       op.Schema       `json:"inputSchema"`
	Hints       map[string]bool `json:"annotations"`

	operation op.Any
}

// Inputs of tools that are not those of their operations.
const (
	confirmName  = "confirm"  // repeats the code of a preview
	databaseName = "database" // names one of several databases
)

// toolsOf returns the operations that are served: without changes those that only look. Those whose result is a secret
// are never served, since conversations are kept. With several databases each tool wants the name of one.
func toolsOf(changes bool, databases []string) []tool {
	described := op.Tools()
	var tools []tool
	for i, o := range op.All() {
		if o.Issues() || o.Changes() && !changes {
			continue
		}
		t := tool{
			Name: described[i].Name, Description: described[i].Description, Input: described[i].Input,
			Hints: map[string]bool{"readOnlyHint": !o.Changes(), "openWorldHint": false}, operation: o,
		}
		// A tool repeats no field of an earlier answer, and takes no secrets: conversations are kept.
		maps.DeleteFunc(t.Input.Properties, func(_ string, s op.Schema) bool { return s.Follows != "" || s.Secret })
		if o.Changes() {
			t.Hints["destructiveHint"] = o.Asks()
			t.Description += " Without confirm it changes nothing, and answers with a preview."
			t.Input.Properties[confirmName] = op.Schema{Type: "string", Description: "The code of the preview of this very call"}
		}
		if len(databases) > 0 {
			t.Input.Properties[databaseName] = op.Schema{Type: "string", Enum: databases, Description: "The database"}
			t.Input.Required = append(t.Input.Required, databaseName)
		}
		tools = append(tools, t)
	}
	return tools
}

// content is the result of a call. Failed: the operation failed, and the text says why.
type content struct {
	Parts  []part `json:"content"`
	Failed bool   `json:"isError,omitempty"`
}

type part struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func text(s string) content { return content{Parts: []part{{"text", s}}} }

func (c *session) call(ctx context.Context, params json.RawMessage) (any, *failure) {
	var p struct {
		Name      string                     `json:"name"`
		Arguments map[string]json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, &failure{codeParams, "the parameters need a name and an object of arguments"}
	}
	for _, t := range c.tools {
		if t.Name == p.Name {
			answer, err := c.runInTurn(ctx, t, p.Arguments)
			if err != nil {
				answer = text(explain(err))
				answer.Failed = true
			}
			return answer, nil
		}
	}
	for _, t := range toolsOf(true, nil) {
		if t.Name == p.Name {
			return nil, &failure{codeParams, p.Name + " changes something: start posthorn mcp with --allow-changes to have it"}
		}
	}
	return nil, &failure{codeParams, fmt.Sprintf("there is no tool %.60q", p.Name)}
}

// runInTurn does the operation when few others run. Waiting and doing have a time limit, since a database that hangs has none.
func (c *session) runInTurn(ctx context.Context, t tool, values map[string]json.RawMessage) (answer content, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
		answer, err = c.run(ctx, t, values)
		<-c.slots
	case <-ctx.Done():
		if err = ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("the call was ended after %.0f seconds, and has not begun: %d other calls were under way. Call again when they have ended", callTime.Seconds(), maxCalls)
		}
		return content{}, err
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("the call had no answer within %.0f seconds, and was ended. The database hangs, or is very slow: ask for less, or later", callTime.Seconds())
		if t.operation.Changes() {
			err = fmt.Errorf("%w. Look whether the change was made before you call again", err)
		}
	}
	return answer, err
}

// run does the operation. One that changes something is done when the code of its preview is given.
func (c *session) run(ctx context.Context, t tool, values map[string]json.RawMessage) (content, error) {
	var confirm string
	if t.operation.Changes() && values[confirmName] != nil {
		if err := json.Unmarshal(values[confirmName], &confirm); err != nil {
			return content{}, errors.New(confirmName + " is no text: give the code of the preview")
		}
		delete(values, confirmName)
	}
	database, err := c.database(values)
	if err != nil {
		return content{}, err
	}
	in := t.operation.New()
	if err := op.ReadTool(t.operation, in, values); err != nil {
		return content{}, err
	}
	var answer content
	err = c.server.With(ctx, database, func(a *admin.Admin) (err error) {
		a = a.HostsOnly()
		if t.operation.Changes() {
			preview, err := previewOf(ctx, a, t, in, values)
			if err != nil {
				return err
			}
			if database != "" {
				preview = "in database " + database + ": " + preview
			}
			if code := codeOf(database, t.Name, preview, values); code != confirm {
				answer = previewed(t.Name, preview, code, confirm != "")
				return nil
			}
		}
		answer, err = done(ctx, a, t.operation, in)
		return err
	})
	return answer, err
}

// database removes the name of the database from the input of a call, and returns it.
func (c *session) database(values map[string]json.RawMessage) (name string, err error) {
	if len(c.server.Databases) == 0 {
		return "", nil
	}
	if json.Unmarshal(values[databaseName], &name) != nil || !slices.Contains(c.server.Databases, name) {
		return "", errors.New(databaseName + " names none of the databases: give one of " + strings.Join(c.server.Databases, ", "))
	}
	delete(values, databaseName)
	return name, nil
}

// previewOf says what a change would do: the question that people are asked, or else the description and the input.
func previewOf(ctx context.Context, a *admin.Admin, t tool, in any, values map[string]json.RawMessage) (string, error) {
	if t.operation.Asks() {
		if question, err := t.operation.Question(ctx, a, in); err != nil || question != "" {
			return question, err
		}
	}
	input, err := json.Marshal(values)
	return fmt.Sprintf("%s: %s", t.operation.Describe().Does, input), err
}

func previewed(name, preview, code string, other bool) content {
	note := ""
	if other {
		note = " The code that was given belongs to another preview."
	}
	return text(fmt.Sprintf("Nothing has been changed.%s This call would: %s. To do it, call %s again with the same input and with %s: %q.",
		note, preview, name, confirmName, code))
}

// secret makes codes of this process ones that nobody can guess without having asked for a preview.
var secret = rand.Text()

// codeOf is the code of a preview. Another input has another one, and so has the same input when its preview has changed.
func codeOf(database, name, preview string, values map[string]json.RawMessage) string {
	compact := map[string]string{}
	for key, value := range values {
		var b bytes.Buffer
		_ = json.Compact(&b, value) // it was read before
		compact[key] = b.String()
	}
	text, _ := json.Marshal([]any{secret, database, name, preview, compact})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:5])
}

// done does an operation and tells its result.
func done(ctx context.Context, a *admin.Admin, o op.Any, in any) (content, error) {
	out, err := o.Run(ctx, a, in)
	if err != nil {
		return content{}, err
	}
	var answer content
	if o.Changes() {
		answer = text(o.Sentence(in, out))
	}
	if o.Returns() {
		result, err := json.Marshal(out)
		if err != nil {
			return content{}, err
		}
		answer.Parts = append(answer.Parts, part{"text", string(result)})
	}
	return answer, nil
}

// explain is an error with its remedy.
func explain(err error) string {
	if hint := pg.Hint(err); hint != "" {
		return strings.TrimSuffix(err.Error(), ".") + ". " + hint
	}
	return err.Error()
}
