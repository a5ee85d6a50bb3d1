package in

import (
	"encoding/json"

	"github.com/posthorn/posthorn/admin"
)

// WebhookSettings is part of every body that creates or changes a webhook. Its filter has
// the form of subscriptions.
type WebhookSettings struct {
	admin.WebhookSettings
	Filter    map[string]json.RawMessage `json:"filter,omitempty" doc:"type, stream, key, tags_any, tags_all and payload, as in subscriptions. Default: every event"`
	Condition string                     `json:"conditions_sql,omitempty" doc:"Instead of a filter: an SQL expression over e and s"`
	Params    map[string]json.RawMessage `json:"params,omitempty" doc:"The parameters of the condition"`
}
