package in

// Worker is part of each body in which a worker reports on its job.
type Worker struct {
	WorkerID string `json:"worker_id" doc:"The one that took the job" example:"worker-02:8742"`
	Attempt  *int32 `json:"attempt,omitempty" minimum:"1" doc:"The one that was taken: another one is then refused"`
}

// Reporter is the part that says who reports.
func (w Worker) Reporter() Worker { return w }

// Ended is part of each body that ends an attempt.
type Ended struct {
	StatusCode      *int32 `json:"status_code,omitempty" example:"200"`
	ExecutionTimeMS *int64 `json:"execution_time_ms,omitempty" minimum:"0" example:"1250"`
}
