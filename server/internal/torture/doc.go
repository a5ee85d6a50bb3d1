// Package torture works off jobs over HTTP while everything that can is killed:
// workers in the middle of their work, and the server under them. Then it reads
// the log of every job, which has to tell a story that can have happened.
//
// There is nothing here but the test. -torture.jobs makes it longer.
package torture
