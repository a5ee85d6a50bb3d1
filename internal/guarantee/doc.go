// Package guarantee has a test for each promise about the log, one file for each
// promise. The tests use SQL, because the SQL functions are the API. They do not wait
// for races but provoke them: two or more sessions alternate, and the clock of the
// test's database is set instead of waiting.
//
// It has no code for other packages and no random load: package torture runs
// overlapping load with a checker.
package guarantee
