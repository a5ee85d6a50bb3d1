package schema

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const printHead = `-- Posthorn, schema %s. Installs it into a database that has none:
--   psql -1 -v ON_ERROR_STOP=1 -f posthorn.sql

do $$
begin
  if to_regclass('posthorn.schema_version') is not null then
    raise exception 'this database has the schema posthorn already'
      using errcode = 'PH002', hint = 'use posthorn migrate to upgrade';
  end if;
end
$$;

`

func (b bundle) print(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, printHead, b.version)
	for _, step := range script(b.steps(State{Standing: Absent})) {
		fmt.Fprintf(&text, "-- %s\n\n%s\n", step.Name, step.SQL)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// script prepares steps for any client. The settings are set for the session, since
// the client decides whether there is a transaction.
func script(steps []Step) []Step {
	set, reset := Step{Name: "settings"}, Step{Name: "settings as before"}
	for _, s := range scriptSettings {
		name, _, _ := strings.Cut(s, " ")
		set.SQL += "set " + s + ";\n"
		reset.SQL += "reset " + name + ";\n"
	}
	return slices.Concat([]Step{set}, steps, []Step{reset})
}
