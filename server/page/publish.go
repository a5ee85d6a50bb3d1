package page

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) publish() {
	p.screen(Screen{Path: "event/publish", Under: "events", Scope: "publish", Show: publishForm})
	p.action(Action{Path: "event/publish", Scope: "publish", Do: publishEvent})
}

// publishForm is filled in with another event, if the request names one.
func publishForm(ctx context.Context, r *Request) (*View, error) {
	e := admin.Event{Stream: "default", Payload: json.RawMessage("{}"), Metadata: json.RawMessage("{}")}
	id, err := r.optionalNumber("like")
	if err == nil && id != 0 {
		if e, err = r.Admin.Event(ctx, id); e.Sealed {
			e.Payload = json.RawMessage("{}")
		}
		e.Metadata = ownMetadata(e.Metadata)
	}
	return &View{Title: "Publish an event", Template: "event_publish.html", Data: e}, err
}

// ownMetadata leaves out fields that publishing adds.
func ownMetadata(metadata json.RawMessage) json.RawMessage {
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(metadata, &fields) != nil {
		return json.RawMessage("{}")
	}
	for _, name := range []string{"producer", "scheduledTaskId", "traceparent", "tracestate", "baggage", "origin"} {
		delete(fields, name)
	}
	own, err := json.Marshal(fields)
	if err != nil {
		return json.RawMessage("{}")
	}
	return own
}

func publishEvent(ctx context.Context, r *Request) (string, string, error) {
	var message admin.Message
	if err := r.Fill(&message); err != nil {
		return "", "", err
	}
	var published struct {
		IDs []int64 `json:"ids"`
	}
	if err := r.Call(ctx, http.MethodPost, "/v1/events", message, &published); err != nil {
		return "", "", err
	}
	return r.Link("event", "id", published.IDs[0]), "Published.", nil
}
