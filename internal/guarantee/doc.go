// Package guarantee has a test for each thing that the log promises, one file
// a promise. The tests speak SQL, because the SQL functions are the API, and
// make races happen rather than wait for them: two or more sessions take turns,
// and the clock of the test's database is moved instead of waiting.
//
// It holds no code for other packages, and nothing at random: overlapping load
// with a checker behind it is package torture.
package guarantee
