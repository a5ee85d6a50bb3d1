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

func healthy() *health {
	var h health
	h.Body.Status = "ok"
	return &h
}

func (s *Server) health() {
	register(s, operation{
		method: http.MethodGet, path: "/healthz", id: "health", tag: "server", scope: scopeNone,
		summary:     "Liveness of the server",
		description: "200 as long as the process answers, even if it cannot reach the database.",
	}, func(context.Context, caller, *struct{}) (*health, error) { return healthy(), nil })

	register(s, operation{
		method: http.MethodGet, path: "/readyz", id: "ready", tag: "server", scope: scopeNone,
		summary:     "Readiness of the server",
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
	return healthy(), nil
}
