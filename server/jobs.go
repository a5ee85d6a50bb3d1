package server

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// jobs are the only routes at the root. Their shapes were given, down to which
// fields are null and which are left out, so they differ in small ways from what
// is under /v1: bodies may have fields that we do not know, and lists count.
func (s *Server) jobs() {
	s.jobsToCreate()
	s.jobsToWork()
	s.jobsToRead()
	s.jobsToManage()
	s.jobsToChange()
}

func (s *Server) jobsToCreate() {
	register(s, operation{
		method: http.MethodPost, path: "/events", id: "enqueue-job", tag: "jobs",
		summary: "Enqueue a job",
		description: "201 with the job. 200 with the job that is there already, when unique_key or Idempotency-Key is that of one: " +
			"unique_key counts while that job is pending, or for unique_for; Idempotency-Key for a day.",
		scope: scopeJobsCreate, status: http.StatusCreated,
		body: jsonBody[newJob](s),
	}, s.enqueueJob)
	s.api.OpenAPI().Paths["/events"].Post.Responses["200"] = jsonResponse[jobView](s, "The job that was there already")
}

func (s *Server) jobsToWork() {
	register(s, operation{
		method: http.MethodGet, path: "/events/subscribe", id: "claim-job", tag: "jobs",
		summary: "Take a job",
		description: "The oldest due job that has any of the tags, those of higher priority first. It is the worker's until the lease " +
			"passes; then it is available again. 204 without a body when there is none.",
		scope: scopeJobsWork, waits: true,
	}, s.claimJob)
	s.api.OpenAPI().Paths["/events/subscribe"].Get.Responses["204"] = &huma.Response{Description: "There is no such job"}
	// HEAD would be GET without the answer: a job that nobody gets.
	s.mux.HandleFunc("HEAD /events/subscribe", s.requireRaw(scopeJobsWork, func(w http.ResponseWriter, _ *http.Request, _ caller) error {
		w.Header().Set("Allow", http.MethodGet)
		return newProblem(http.StatusMethodNotAllowed, "HEAD is not possible here", "GET takes a job.")
	}))
	register(s, operation{
		method: http.MethodPost, path: "/events/{id}/start", id: "start-job", tag: "jobs",
		summary:     "Say that the work on a job begins",
		description: "It is recorded once for each attempt, and shows that the worker is alive.",
		scope:       scopeJobsWork, body: jsonBody[startBody](s),
	}, s.startJob)
	register(s, operation{
		method: http.MethodPost, path: "/events/{id}/heartbeat", id: "heartbeat-job", tag: "jobs",
		summary:     "Keep a job for longer, and tell its progress",
		description: "The lease lasts from now as long as the job was taken for, or lease_seconds. 409: the job is no longer the worker's.",
		scope:       scopeJobsWork, body: jsonBody[heartbeatBody](s),
	}, s.heartbeatJob)
	register(s, operation{
		method: http.MethodPost, path: "/events/{id}/complete", id: "complete-job", tag: "jobs",
		summary:     "Say that a job is done",
		description: "Said again, it answers with what was recorded, as long as the worker has recorded nothing else of the job since.",
		scope:       scopeJobsWork, body: jsonBody[completeBody](s),
	}, s.completeJob)
	register(s, operation{
		method: http.MethodPost, path: "/events/{id}/fail", id: "fail-job", tag: "jobs",
		summary: "Say that an attempt at a job failed",
		description: "It is tried again later, unless max_retries attempts have failed now: then the job is FAILED, and the answer is 400. " +
			"Said again, it answers 200 with what was recorded.",
		scope: scopeJobsWork, body: jsonBody[failBody](s), response: jsonContent[failureView](s),
	}, s.failJob)
	s.api.OpenAPI().Paths["/events/{id}/fail"].Post.Responses["400"] = jsonResponse[exhaustedView](s,
		"It was recorded, and was the last attempt. (Or the request is wrong: then it is a problem.)")
}

func (s *Server) jobsToRead() {
	register(s, operation{
		method: http.MethodGet, path: "/events/{id}", id: "get-job", tag: "jobs",
		summary:     "One job",
		description: "With include_logs the answer holds what was recorded of the job, in order.",
		scope:       scopeRead,
	}, s.getJob)
	register(s, operation{
		method: http.MethodGet, path: "/events", id: "list-jobs", tag: "jobs",
		summary:     "Jobs, oldest first",
		description: "Jobs that meet every filter. total is the number of all of them, and limit and offset choose a page.",
		scope:       scopeRead,
	}, s.listJobs)
}

func (s *Server) jobsToManage() {
	register(s, operation{
		method: http.MethodPost, path: "/events/{id}/reset", id: "reset-job", tag: "jobs",
		summary: "Make a job pending again",
		description: "One that is PROCESSING: its worker is fenced out, and retry_count stays. " +
			"Or one that has FAILED: retry_count is 0 again. Any other is 409.",
		scope: scopeAdmin,
	}, s.resetJob)
	register(s, operation{
		method: http.MethodPost, path: "/events/{id}/cancel", id: "cancel-job", tag: "jobs",
		summary:     "Give up a job that is not finished",
		description: "A worker that has it is fenced out. Again, it changes nothing.",
		scope:       scopeJobsCreate,
	}, s.cancelJob)
}

// splitTags reads tags as these routes write them: separated by commas.
func splitTags(text string) ([]string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, badRequest("tags is missing", "Give at least one tag; separate several by commas.")
	}
	tags := strings.Split(text, ",")
	for i := range tags {
		if tags[i] = strings.TrimSpace(tags[i]); tags[i] == "" {
			return nil, badRequest("tags has an empty tag", "Separate tags by single commas.")
		}
	}
	return tags, nil
}

func joinTags(tags []string) string { return strings.Join(tags, ",") }
