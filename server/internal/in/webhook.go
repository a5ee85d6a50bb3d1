package in

import (
	"encoding/json"

	"github.com/posthorn/posthorn/admin"
)

// WebhookSettings is part of each body that sets up a webhook: the filter stands beside
// the other settings, in the form that subscriptions have.
type WebhookSettings struct {
	admin.WebhookSettings
	Filter    map[string]json.RawMessage `json:"filter,omitempty" doc:"type, stream, key, tags_any, tags_all and payload, as in subscriptions. Default: everything passes"`
	Condition string                     `json:"conditions_sql,omitempty" doc:"Instead of a filter: an expression over e and s"`
	Params    map[string]json.RawMessage `json:"params,omitempty" doc:"Of the condition"`
}
