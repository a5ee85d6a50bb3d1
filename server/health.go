package server

import (
	"context"
	"net/http"
	"time"
)

type health struct {
	Body struct {
		Status string `json:"status" example:"ok"`
	}
}

func ok() *health {
	var h health
	h.Body.Status = "ok"
	return &h
}

func (s *Server) health() {
	register(s, operation{
		method: http.MethodGet, path: "/healthz", id: "health", group: "server", scope: scopeNone,
		summary:     "Whether the server runs",
		description: "200 while the process answers, whatever the database does.",
	}, func(context.Context, caller, *struct{}) (*health, error) { return ok(), nil })

	register(s, operation{
		method: http.MethodGet, path: "/readyz", id: "ready", group: "server", scope: scopeNone,
		summary:     "Whether the server can answer",
		description: "503 while the database cannot be reached, and while the server stops.",
	}, s.ready)
}

func (s *Server) ready(ctx context.Context, _ caller, _ *struct{}) (*health, error) {
	if s.isDraining() {
		return nil, errDraining()
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := s.client.Pool().Ping(ctx); err != nil {
		return nil, err
	}
	return ok(), nil
}
