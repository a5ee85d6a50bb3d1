// Command mutants checks that the tests notice plausible bugs. It makes one small
// change at a time, runs the tests that ought to fail, and prints the changes that none
// of them notices: the survivors.
//
//	go run ./internal/test/mutants                 all mutants; continues an interrupted run
//	go run ./internal/test/mutants -only settle    those whose name or file contains settle
//	go run ./internal/test/mutants -every 9        a sample: the first of them, and each ninth after it
//	go run ./internal/test/mutants -scenarios      those that name scenarios, without tests: takes seconds for each
//
// The mutants are listed in the text files of this directory:
//
//	mutant: settle accepts a lost lease
//	file: schema/functions/core/group/settle.sql
//	promise: a lease that was lost cannot be settled
//	tests: internal/guarantee TestLateSettleIsRefusedAndChangesNothing
//	- the text, which occurs once in the file,
//	- verbatim, each line after a minus sign and a space
//	+ the replacement; without it, the text is left out
//
// "tests" may be repeated for several packages. A line "scenarios: late order" names scenarios
// of internal/schedule, which are searched before the tests run. A mutant that no test notices has a
// line "survives" with the reason. Functions of SQL whose test uses another server have a
// line "compiled".
//
// A mutant is tried with the sizes of make test first. If no test notices it, it is tried with
// those of make test-all, and listed as noticed by that only, or as a survivor.
//
// The checkout is never changed. A changed function of SQL is applied to the database
// that tests copy, so nothing is compiled; a changed file of any other kind replaces
// the original while the tests are compiled (go build -overlay).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	only := flag.String("only", "", "only the mutants whose name or file contains this")
	every := flag.Int("every", 1, "of the mutants that -only selects, only the first, and then each one after so many: a sample")
	verbose := flag.Bool("v", false, "print the output of the tests")
	searchOnly := flag.Bool("scenarios", false, "only the mutants that name scenarios, and no tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	all, err := load(*only)
	if err == nil {
		all, err = sample(all, *every)
	}
	if err == nil && *searchOnly {
		err = searchAll(ctx, all, *verbose)
	} else if err == nil {
		err = run(ctx, all, *verbose)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// load reads the mutants whose name or file contains a text, and checks all.
func load(only string) ([]mutant, error) {
	all, err := loadMutants(data)
	if err != nil {
		return nil, err
	}
	if problems := checkAll(".", all); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return slices.DeleteFunc(all, func(m mutant) bool {
		return !strings.Contains(m.name, only) && !strings.Contains(m.file, only)
	}), nil
}

// sample returns the first mutant, and then each one after so many.
func sample(all []mutant, every int) (some []mutant, err error) {
	if every < 1 {
		return nil, errors.New("-every is less than 1")
	}
	for i := 0; i < len(all); i += every {
		some = append(some, all[i])
	}
	return some, nil
}

func run(ctx context.Context, selected []mutant, verbose bool) error {
	results, err := openResults(ctx)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(selected), func(m mutant) bool { _, has := results.of(m); return has })
	if len(left) > 0 {
		w, err := newWorkshop(ctx, verbose)
		if err != nil {
			return err
		}
		defer w.close()
		if err := w.tryAll(ctx, left, results); err != nil {
			return err
		}
	}
	return results.print(os.Stdout, selected)
}
