package server

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/server/internal/in"
)

type manageJobInput struct {
	in.Namespace
	ID     int64  `path:"id" minimum:"1" doc:"The number of the job"`
	Reason string `query:"reason" maxLength:"1000" doc:"Goes into the log" example:"worker_timeout"`
}

func (s *Server) resetJob(ctx context.Context, c caller, input *manageJobInput) (*jobOutput, error) {
	return s.changeJob(ctx, c, input, pg.ResetJob)
}

func (s *Server) cancelJob(ctx context.Context, c caller, input *manageJobInput) (*jobOutput, error) {
	return s.changeJob(ctx, c, input, pg.CancelJob)
}

// changeJob answers with the job as the change has left it, whoever takes it next.
func (s *Server) changeJob(ctx context.Context, c caller, input *manageJobInput,
	change func(context.Context, pg.DB, string, int64, string) error,
) (*jobOutput, error) {
	var output jobOutput
	err := pgx.BeginFunc(ctx, s.client.Pool(), func(tx pgx.Tx) error {
		if err := change(ctx, tx, c.namespace, input.ID, input.Reason); err != nil {
			return err
		}
		job, err := pg.GetJob(ctx, tx, c.namespace, input.ID)
		output.Body = viewOfJob(job)
		return err
	})
	return &output, err
}
