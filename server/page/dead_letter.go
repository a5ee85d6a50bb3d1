package page

import (
	"context"
	"fmt"
	"net/http"

	"github.com/posthorn/posthorn/admin"
)

// letterOf finds the dead letter of a request, discarded or not.
func letterOf(ctx context.Context, r *Request) (admin.DeadLetter, error) {
	id, err := r.Number("id")
	if err != nil {
		return admin.DeadLetter{}, err
	}
	return r.Admin.DeadLetter(ctx, id)
}

func showDeadLetter(ctx context.Context, r *Request) (*View, error) {
	letter, err := letterOf(ctx, r)
	return &View{Title: fmt.Sprintf("Dead letter %d", letter.ID), Data: letter}, err
}

func editDeadLetter(ctx context.Context, r *Request) (*View, error) {
	letter, err := letterOf(ctx, r)
	if err == nil && letter.Sealed {
		err = &Problem{
			Status: http.StatusForbidden, Detail: "the payload is confidential and does not open here",
			Hint: "Publish a new event in a process that has the key.",
		}
	}
	return &View{Title: "Edit and redrive", Template: "dead_letter_edit.html", Data: letter}, err
}
