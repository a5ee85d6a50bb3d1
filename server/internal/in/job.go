package in

// Worker is part of every body in which a worker reports on its job.
type Worker struct {
	WorkerID string `json:"worker_id" doc:"The worker that claimed the job" example:"worker-02:8742"`
	Attempt  *int32 `json:"attempt,omitempty" minimum:"1" doc:"The attempt that the worker claimed. If it is not the current attempt of the job, the report is refused"`
}

// Reporter returns the worker of a body.
func (w Worker) Reporter() Worker { return w }

// Ended is part of every body that ends an attempt.
type Ended struct {
	StatusCode      *int32 `json:"status_code,omitempty" example:"200"`
	ExecutionTimeMS *int64 `json:"execution_time_ms,omitempty" minimum:"0" example:"1250"`
}
