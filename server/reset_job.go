package server

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

type manageJobInput struct {
	in.Namespace
	ID     int64  `path:"id" minimum:"1" doc:"The number of the job"`
	Reason string `query:"reason" maxLength:"1000" doc:"Goes into the log" example:"worker_timeout"`
}

func (s *Server) resetJob(ctx context.Context, c caller, input *manageJobInput) (*jobOutput, error) {
	return s.changeJob(ctx, c, input, (*admin.Admin).ResetJob)
}

func (s *Server) cancelJob(ctx context.Context, c caller, input *manageJobInput) (*jobOutput, error) {
	return s.changeJob(ctx, c, input, (*admin.Admin).CancelJob)
}

// changeJob answers with the job as the change has left it, whoever takes it next.
func (s *Server) changeJob(ctx context.Context, c caller, input *manageJobInput,
	change func(a *admin.Admin, ctx context.Context, id int64, reason string) error,
) (*jobOutput, error) {
	var output jobOutput
	err := pgx.BeginFunc(ctx, s.client.Pool(), func(tx pgx.Tx) error {
		a := s.admin(c).In(tx)
		if err := change(a, ctx, input.ID, input.Reason); err != nil {
			return err
		}
		job, err := a.Job(ctx, input.ID)
		output.Body = viewOfJob(job)
		return err
	})
	return &output, err
}
