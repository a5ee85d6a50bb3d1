package guarantee

import "testing"

func (s *session) jobNews() int64 {
	s.t.Helper()
	return value[int64](s, "select pg_sequence_last_value('posthorn.job_news')")
}

// The end of a job is news for workers, though the one job that was parked behind it is
// gone: others of its tag have room now.
func TestEndOfAJobIsNewsThoughNoneIsParked(t *testing.T) {
	t.Parallel()
	for _, withdraw := range []string{"cancel_job($1)", "delete_job($1)"} {
		t.Run(withdraw, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.exec("select posthorn.set_job_limit('default', 'x', 1)")
			ids := []int64{s.job("{x}"), s.job("{x}"), s.job("{x}")}
			equal(t, "taken", s.claimJobs("w", "{x}", 10), ids[:1])
			equal(t, "parked", column[int64](s, "select job from posthorn.parked_jobs"), ids[1:2])
			s.exec("select posthorn."+withdraw, ids[1])
			before := s.jobNews()
			s.exec("select posthorn.complete_job($1, 'w')", ids[0])
			if s.jobNews() == before {
				t.Error("the end of a job was no news")
			}
			equal(t, "taken next", s.claimJobs("w", "{x}", 10), ids[2:])
		})
	}
}

// The end of a job is news, though the claim that parks the next one has not committed yet.
func TestEndOfAJobIsNewsWhileTheNextIsBeingParked(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'x', 1)")
	first := s.job("{x}")
	equal(t, "taken", s.claimJobs("w", "{x}", 10), []int64{first})
	second := s.job("{x}")
	claiming := s.another()
	claiming.exec("begin")
	equal(t, "taken by another", claiming.claimJobs("v", "{x}", 10), []int64{})
	before := s.jobNews()
	s.exec("select posthorn.complete_job($1, 'w')", first)
	if s.jobNews() == before {
		t.Error("the end of a job was no news")
	}
	claiming.exec("commit")
	equal(t, "taken next", s.claimJobs("w", "{x}", 10), []int64{second})
}
