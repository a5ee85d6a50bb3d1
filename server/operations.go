package server

import (
	"context"
	"net/http"

	"github.com/posthorn/posthorn/op"
)

// Routes are made of the operations of package op. Each has a line of its own, since huma
// needs the types of inputs and results when it is compiled.

func (s *Server) operations() {
	serveAll(s, op.ListSchedules)
	serveOne(s, op.GetSchedule)
	serveOne(s, op.PutSchedule)
	serveNone(s, op.DeleteSchedule)
	serveNone(s, op.PauseSchedule)
	serveNone(s, op.ResumeSchedule)
	serveOne(s, op.RunSchedule)

	serveAll(s, op.ListGroups)
	serveOne(s, op.GetGroup)
	serveOne(s, op.DefineGroup)
	serveOne(s, op.DeleteGroup)
	serveNone(s, op.PauseGroup)
	serveNone(s, op.ResumeGroup)
	serveNone(s, op.SeekGroup)
	serveOne(s, op.PreviewSeekGroup)

	serveAll(s, op.ListSubscriptions)
	serveOne(s, op.PutSubscription)
	serveOne(s, op.DeleteSubscription)

	serveAll(s, op.ListNodes)
	serveOne(s, op.RemoveNode)
	serveAll(s, op.ListBusyWorkers)

	serveAll(s, op.ListProjections)
	serveOne(s, op.GetProjection)
	serveNone(s, op.AbandonReplacement)

	serveAll(s, op.ListRelays)
	serveOne(s, op.GetRelay)

	serveAll(s, op.ListImports)
	serveOne(s, op.GetImport)
	serveNone(s, op.DeleteImport)

	serveAll(s, op.ListFailovers)
	serveOne(s, op.GetFailover)
	serveCount(s, op.BringBackFailover)

	serveAll(s, op.ListArchives)
	serveOne(s, op.GetArchive)
	serveOne(s, op.RelistArchive)

	serveCount(s, op.RetryJobs.Many())
	serveCount(s, op.CancelJobs.Many())
	serveCount(s, op.DeleteJobs.Many())

	serveAll(s, op.ListStuckJobs)
	serveAll(s, op.ListJobLimits)
	serveAll(s, op.ListJobTags)
	serveNone(s, op.SetJobLimit)
	serveNone(s, op.PauseJobTag)
	serveOne(s, op.ResumeJobTag)

	serveAll(s, op.ListNamespaces)
	serveNone(s, op.DefineNamespace)
	serveNone(s, op.CloseNamespace)
	serveNone(s, op.OpenNamespace)
	serveOne(s, op.KeepNamespace)
	serveOne(s, op.DeleteNamespace)

	register(s, routeOf(op.ListStreams), s.listStreams)
	serveOne(s, op.GetStream)
	serveNone(s, op.SetStreamPolicy)
	serveNone(s, op.RotateStreamKey)

	serveAll(s, op.ListTokens)
	serveMade(s, op.CreateToken)
	serveOne(s, op.RevokeToken)

	serveAll(s, op.ListWebhooks)
	serveOne(s, op.GetWebhook)
	serveMade(s, op.CreateWebhook)
	serveOne(s, op.ChangeWebhook)
	serveOne(s, op.DeleteWebhook)
	serveNone(s, op.EnableWebhook)
	serveNone(s, op.DisableWebhook)
	register(s, routeOf(op.RotateWebhookSecret), s.rotateWebhook)
	serveOne(s, op.TestWebhook)
	serveOne(s, op.RedeliverWebhook)
	register(s, routeOf(op.ListWebhookDeliveries), s.listWebhookDeliveries)
}

// serveOne adds the route of an operation that returns one thing.
func serveOne[In, Out any](s *Server, o op.Op[In, Out]) { serveWith(s, o, http.StatusOK) }

// serveMade adds the route of an operation that makes a thing, and returns it.
func serveMade[In, Out any](s *Server, o op.Op[In, Out]) { serveWith(s, o, http.StatusCreated) }

func serveWith[In, Out any](s *Server, o op.Op[In, Out], status int) {
	route := routeOf(o)
	route.status = status
	register(s, route, func(ctx context.Context, c caller, in *In) (*bodyOf[Out], error) {
		out, err := perform(ctx, s, c, o, in)
		return &bodyOf[Out]{out}, err
	})
}

// serveNone adds the route of an operation that returns nothing.
func serveNone[In any](s *Server, o op.Op[In, op.None]) {
	route := routeOf(o)
	route.status = http.StatusNoContent
	register(s, route, func(ctx context.Context, c caller, in *In) (*struct{}, error) {
		_, err := perform(ctx, s, c, o, in)
		return nil, err
	})
}

// serveAll adds the route of an operation that returns all things of a kind.
func serveAll[In, T any](s *Server, o op.Op[In, []T]) {
	register(s, routeOf(o), func(ctx context.Context, c caller, in *In) (*listOf[T], error) {
		all, err := perform(ctx, s, c, o, in)
		return page(all, ""), err
	})
}

func perform[In, Out any](ctx context.Context, s *Server, c caller, o op.Op[In, Out], in *In) (Out, error) {
	out, err := o.Call(ctx, s.admin(c), in)
	if o.Wakes {
		s.groupQueues.WakeAll()
	}
	return out, err
}

func routeOf(o op.Any) operation {
	about := o.Describe()
	return operation{
		method: about.Method, path: about.Path, id: about.Name, tag: about.Topic.Many,
		summary: about.Does, description: about.More, scope: scope(about.Scope),
	}
}
