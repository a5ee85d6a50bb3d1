package doctor

import "testing"

// A line of advice can be copied into a shell, whatever names are in it.
func TestCommandsQuoteNames(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]string{
		`posthorn --namespace shop groups delete été.v2`:           {"été.v2"},
		`posthorn --namespace shop groups delete -- '--json x'`:    {"--json x"},
		`posthorn --namespace shop groups delete 'a'\''b' '$HOME'`: {"a'b", "$HOME"},
		`posthorn --namespace shop groups delete -- a -b`:          {"a", "-b"},
	} {
		if got := command("shop", "groups delete", names...); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
