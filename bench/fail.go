package main

import "fmt"

// Functions that prepare a row or measure it return no error. They fail, as a test does by
// Fatal, and measureAll returns the error. So a measure shows the work that it times.

// failure is the panic value of a function that fails.
type failure struct{ error }

// check fails if there is an error.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns a value, or fails.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// expect fails unless all things are there.
func expect(things string, got, want int) {
	if got != want {
		fail("%d %s instead of %d", got, things, want)
	}
}

// caught returns the error of a function that fails. A goroutine must call it, since
// nothing else catches its failure.
func caught(do func()) (err error) {
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case failure:
			err = problem.error
		default:
			panic(problem)
		}
	}()
	do()
	return nil
}

// naming calls a function, and names its part of the work if it fails.
func naming(part string, do func()) {
	if err := caught(do); err != nil {
		fail("%s: %w", part, err)
	}
}
