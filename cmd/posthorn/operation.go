package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

// Commands are made of the operations of package op: usage, help, argument, flags, question
// and answer. Columns and fields are added here, and what people need to know about them.

// aboutOf describes the command of an operation. More is a further paragraph of its help.
func aboutOf(o op.Any, more string) about {
	d := o.Describe()
	long := wrap(d.Does+". "+d.More, 81)
	if more != "" {
		long += "\n\n" + more
	}
	_, use, _ := strings.Cut(d.Command, " ")
	return about{use, d.Does, long, "  " + strings.ReplaceAll(d.Example, "\n", "\n  ")}
}

// wrap breaks a text into lines of at most that many characters.
func wrap(text string, most int) string {
	var b strings.Builder
	length := 0
	for _, word := range strings.Fields(text) {
		switch {
		case length == 0:
		case length+1+len(word) > most:
			b.WriteString("\n")
			length = 0
		default:
			b.WriteString(" ")
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String()
}

// change makes the command of an operation that changes something. With may change it.
func change(a *app, o op.Any, with ...func(*changeCommand)) *cobra.Command {
	return changeOf(a, o, o.New(), with...)
}

// changeOf is change with an input, of which with may set fields.
func changeOf(a *app, o op.Any, in any, with ...func(*changeCommand)) *cobra.Command {
	c := changeCommand{
		about: aboutOf(o, ""), json: o.Returns(),
		prepare: func(_ *cobra.Command, args []string) error { return readArguments(o, in, args) },
		do: func(ctx context.Context, adm *admin.Admin, _ []string) (result, error) {
			out, err := o.Run(ctx, adm, in)
			if err != nil {
				return result{}, err
			}
			if id, ok := out.(fmt.Stringer); ok { // for scripts
				return result{id.String(), out}, nil
			}
			return result{o.Sentence(in, out), out}, nil
		},
	}
	if o.Asks() {
		c.ask = func(ctx context.Context, adm *admin.Admin, _ []string) (string, error) {
			return o.Question(ctx, adm, in)
		}
	}
	for _, change := range with {
		change(&c)
	}
	cmd := c.build(a)
	addFlags(cmd.Flags(), in)
	return cmd
}

// list makes the command of an operation that lists all things of a kind. More explains the
// columns.
func list[T any](a *app, o op.Op[op.Nothing, []T], more string, columns columns[T]) *cobra.Command {
	return listCommand[T]{
		about: aboutOf(o, more), columns: columns,
		list: func(adm *admin.Admin, ctx context.Context) ([]T, error) { return o.Call(ctx, adm, &op.Nothing{}) },
	}.build(a)
}

// show makes the command of an operation that shows one thing. Below prints the rest of it,
// and may be nil.
func show[T any](a *app, o op.Op[op.ByName, T], fields func(fields, T), below func(io.Writer, T) error) *cobra.Command {
	return showCommand[T]{
		about: aboutOf(o, ""), fields: fields, below: below,
		load: func(ctx context.Context, adm *admin.Admin, name string) (T, error) {
			return o.Call(ctx, adm, &op.ByName{Name: name})
		},
	}.build(a)
}

// readArguments sets the fields that name the thing of an operation.
func readArguments(o op.Any, in any, args []string) error {
	for i, subject := range op.Subjects(in) {
		if err := subject.Set(args[i]); err != nil {
			topic := o.Describe().Topic
			return usageError{fmt.Errorf("%q is no %s of a %s", args[i], subject.Name, topic.One), "run: posthorn " + strings.Fields(o.Describe().Command)[0] + " list"}
		}
	}
	return nil
}
