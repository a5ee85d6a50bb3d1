// Package torture runs the whole pipeline, publishers to the consumers of two
// brokers and an archive, while its processes and servers are killed in turn, and
// then looks for every event in every place where it has to be.
//
// There is nothing in it but tests. The log says what was published; each place
// is compared with it:
//
//	brokers    every event, in the order of its stream once repeats are dropped
//	archive    every event exactly once, and it verifies
//	consumers  the effect of every event exactly once
package torture
