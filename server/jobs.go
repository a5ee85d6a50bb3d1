package server

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthorn/posthorn/op"
)

// jobs registers the routes of jobs. Their JSON was specified before the other routes,
// including which fields are null and which are left out. So it differs: bodies may have
// unknown fields, and a list has the total number of jobs. See registerJob for the paths.
func (s *Server) jobs() {
	s.jobsToCreate()
	s.jobsToWork()
	s.jobsToRead()
	s.jobsToChange()
}

func (s *Server) jobsToCreate() {
	enqueue := routeOf(op.EnqueueJob)
	enqueue.status, enqueue.body = http.StatusCreated, jsonBody[newJob](s)
	registerJob(s, enqueue, s.enqueueJob, atEvents)
	for _, path := range []string{jobsPath, compatiblePath} {
		s.api.OpenAPI().Paths[path].Post.Responses["200"] = jsonResponse[jobView](s, "The existing job")
	}
}

func (s *Server) jobsToWork() {
	registerJob(s, operation{
		method: http.MethodPost, path: jobsPath + "/claim", id: "claim-job", tag: "jobs",
		summary: "Claim a job",
		description: "The job has any of the tags and is due; higher priority first, then older jobs first. The worker has it until the lease " +
			"expires; then others can claim it. 204 without a body if there is no such job.",
		scope: scopeJobsWork, waits: true,
	}, s.claimJob, asItIs)
	none := &huma.Response{Description: "There is no such job"}
	s.api.OpenAPI().Paths["/v1/jobs/claim"].Post.Responses["204"] = none
	s.api.OpenAPI().Paths["/events/subscribe"].Get.Responses["204"] = none
	// The mux answers HEAD with the handler of GET, and the claimed job would be lost.
	s.mux.HandleFunc("HEAD /events/subscribe", s.requireRaw(scopeJobsWork, func(w http.ResponseWriter, _ *http.Request, _ caller) error {
		w.Header().Set("Allow", http.MethodGet)
		return newProblem(http.StatusMethodNotAllowed, "HEAD is not allowed here", "Use GET, which claims a job.")
	}))
	registerJob(s, operation{
		method: http.MethodPost, path: jobsPath + "/{id}/start", id: "start-job", tag: "jobs",
		summary:     "Report that the work on a job begins",
		description: "It is recorded once for each attempt, and counts as a heartbeat.",
		scope:       scopeJobsWork, body: jsonBody[startBody](s),
	}, s.startJob, withEventID)
	registerJob(s, operation{
		method: http.MethodPost, path: jobsPath + "/{id}/heartbeat", id: "heartbeat-job", tag: "jobs",
		summary:     "Extend the lease on a job, and report progress",
		description: "The lease lasts from now as long as the claim asked for, or lease_seconds. 409: the worker has lost the job.",
		scope:       scopeJobsWork, body: jsonBody[heartbeatBody](s),
	}, s.heartbeatJob, withEventID)
	registerJob(s, operation{
		method: http.MethodPost, path: jobsPath + "/{id}/steps", id: "save-job-step", tag: "jobs",
		summary: "Save the result of a step of a job",
		description: "A step is something that the worker has done for good. Later attempts get the results of all steps with the job, and leave " +
			"these steps out. A step has one result: the first report is saved, and each report returns what is saved. 409: the worker has lost the job.",
		scope: scopeJobsWork, body: jsonBody[stepBody](s),
	}, s.saveJobStep, withEventID)
	registerJob(s, operation{
		method: http.MethodPost, path: jobsPath + "/{id}/sleep", id: "sleep-job", tag: "jobs",
		summary: "Let a job sleep",
		description: "The attempt ends, without a failure, and the job can be claimed again after sleep_for. The next attempt reports the same sleep: " +
			"over is then true, and the attempt goes on. 409: the worker has lost the job.",
		scope: scopeJobsWork, body: jsonBody[sleepBody](s),
	}, s.sleepJob, withEventID)
	registerJob(s, operation{
		method: http.MethodPost, path: jobsPath + "/{id}/await", id: "await-event", tag: "jobs",
		summary: "Wait for an event in a job",
		description: "Returns the first event of the type and key that was published since the job was enqueued. If there is none, the attempt ends " +
			"without a failure: waits_until is then set, and the job can be claimed again when the event comes, or after the timeout. The next " +
			"attempt reports the same wait and gets the event, or timed_out. The token needs the scope consume or read, too. 409: the worker has lost the job.",
		scope: scopeJobsWork, body: jsonBody[awaitBody](s),
	}, s.awaitEvent, withEventID)
	registerJob(s, operation{
		method: http.MethodPost, path: jobsPath + "/{id}/complete", id: "complete-job", tag: "jobs",
		summary:     "Report that a job is done",
		description: "A repeated report returns the recorded one, unless the worker has recorded another report of the job since.",
		scope:       scopeJobsWork, body: jsonBody[completeBody](s),
	}, s.completeJob, withEventID)
	registerJob(s, operation{
		method: http.MethodPost, path: jobsPath + "/{id}/fail", id: "fail-job", tag: "jobs",
		summary: "Report that an attempt at a job failed",
		description: "The job is tried again later. If max_retries attempts have failed, it is FAILED instead, and the status is 400. " +
			"A repeated report returns the recorded one with status 200.",
		scope: scopeJobsWork, body: jsonBody[failBody](s), response: jsonContent[failureView](s),
	}, s.failJob, failedWithEventID)
	for _, path := range []string{jobsPath, compatiblePath} {
		s.api.OpenAPI().Paths[path+"/{id}/fail"].Post.Responses["400"] = jsonResponse[exhaustedView](s,
			"The failure was recorded, and the job has no attempts left. (An invalid request also gets 400, with a problem.)")
	}
	s.api.OpenAPI().Paths["/events/{id}/fail"].Post.Responses["200"].Content = jsonContent[compatible[failureView]](s)
}

func (s *Server) jobsToRead() {
	registerJob(s, routeOf(op.GetJob), s.getJob, asItIs)
	registerJob(s, routeOf(op.ListJobs), s.listJobs, withEventID)
	registerJob(s, routeOf(op.ListJobSteps), s.jobSteps, asItIs)
	registerJob(s, routeOf(op.ListJobWaits), s.waitsOfJob, asItIs)
	registerJob(s, routeOf(op.GetJobTimeline), s.jobTimeline, asItIs)
}

// splitTags reads tags as these routes write them: separated by commas.
func splitTags(text string) ([]string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, badRequest("tags is missing", "Give at least one tag; separate several by commas.")
	}
	tags := strings.Split(text, ",")
	return tags, cleanTags(tags)
}

// cleanTags removes spaces around tags. It fails for an empty one.
func cleanTags(tags []string) error {
	for i := range tags {
		if tags[i] = strings.TrimSpace(tags[i]); tags[i] == "" {
			return badRequest("tags has an empty tag", "Separate tags by single commas.")
		}
	}
	return nil
}

func joinTags(tags []string) string { return strings.Join(tags, ",") }
