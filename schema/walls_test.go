package schema_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/posthorn/posthorn/schema"
)

// A room calls those before it in the order of folders, and no other room of its floor. What no program may call it
// calls only if the map of that room offers it. Core asks what is above it through hooks.
func TestWalls(t *testing.T) {
	t.Parallel()
	for _, breach := range readWalls(schema.Functions()).breaches() {
		t.Error(breach)
	}
}

// Each kind of breach is seen, with the caller, the function that it calls, and the file.
func TestWallsAreSeen(t *testing.T) {
	t.Parallel()
	of := func(name, body string) string {
		return "create or replace function posthorn." + name + "()\nreturns void language sql as $$ " + body + " $$;\n"
	}
	whole := map[string]string{
		"core/base/hooks.sql": of("ended", ""), "core/base/map.sql": "-- For core\n--   cellar\n", "core/base/cellar.sql": of("cellar", ""),
		"core/log/map.sql": "", "core/log/log.sql": of("log", "select posthorn.cellar(), posthorn.ended()"),
		"room/reader/map.sql": "-- For faces\n--   end_reader\n", "room/reader/read.sql": of("read", "") + of("end_reader", "") + "comment on function posthorn.read() is 'consumer: Reads.';\n",
		"room/seal/map.sql": "", "room/seal/seal.sql": of("seal", ""),
		"face/hooks/map.sql": "", "face/hooks/ended.sql": of("ended", "select posthorn.end_reader(), posthorn.read()"),
	}
	for name, test := range map[string]struct{ file, sql, want string }{
		"whole":        {"room/seal/x.sql", of("x", "-- posthorn.end_reader()\nselect posthorn.seal()"), ""},
		"upward":       {"core/log/x.sql", of("x", "select posthorn.read()"), "x (core/log/x.sql) calls read of room/reader, which is above core/log"},
		"circle":       {"core/base/x.sql", of("x", "select posthorn.log()"), "x (core/base/x.sql) calls log of core/log, which is above core/base"},
		"beside":       {"room/seal/x.sql", of("x", "select posthorn.read()"), "x (room/seal/x.sql) calls read of room/reader: rooms do not know each other"},
		"past a map":   {"face/hooks/x.sql", of("x", "select posthorn.seal()"), "x (face/hooks/x.sql) calls seal, which room/seal/map.sql does not offer for faces"},
		"other floor":  {"room/seal/x.sql", of("x", "select posthorn.cellar()"), "x (room/seal/x.sql) calls cellar, which core/base/map.sql does not offer for rooms"},
		"idle offer":   {"room/seal/map.sql", "-- For faces\n--   seal\n", "room/seal/map.sql offers seal for faces, and none of them calls it"},
		"two homes":    {"room/seal/x.sql", of("read", ""), "read stands in room/reader and room/seal, and is no hook"},
		"empty hook":   {"face/hooks/ended.sql", "", "nothing above core answers the hook ended"},
		"called twice": {"room/seal/x.sql", of("ended", ""), "the hook ended is answered twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := fstest.MapFS{"revision": file("1 -"), "migrations/001_x.sql": file("select 1;")}
			for f, sql := range whole {
				files["functions/"+f] = file(sql)
			}
			files["functions/"+test.file] = file(test.sql)
			got := strings.Join(readWalls(schema.Load(t, files).Functions()).breaches(), "\n")
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

type definition struct{ name, room, file, text string }

type walls struct {
	definitions []definition
	homes       map[string][]string // the rooms of each function and view
	hooks       map[string]int      // with the number of answers
	functions   map[string]bool     // the others are views
	granted     map[string]bool     // functions that programs may call
	offers      map[string]map[string]bool
}

var (
	definedObject = regexp.MustCompile(`create (?:or replace )?(function|view|materialized view)(?: if not exists)? posthorn\.(\w+)`)
	// A hint names functions that people should call.
	noCode         = regexp.MustCompile(`--[^\n]*|comment on [^;]*;|hint = (?:format\()?'(?:[^']|'')*'`)
	grantedObject  = regexp.MustCompile(`comment on function posthorn\.(\w+)\([^)]*\) is\s+'(?:publisher|consumer|admin)[a-z, ]*: `)
	calledObject   = regexp.MustCompile(`posthorn\.(\w+)`)
	offeredObjects = regexp.MustCompile(`(?m)^-- For (core|rooms|faces)\n((?:^--   .*\n?)+)`)
	floors         = map[string]string{"core": "core", "room": "rooms", "face": "faces"}
)

func readWalls(steps []schema.Step) walls {
	w := walls{homes: map[string][]string{}, hooks: map[string]int{}, functions: map[string]bool{}, granted: map[string]bool{}, offers: map[string]map[string]bool{}}
	for _, step := range steps {
		room, file := schema.Folder(step), strings.TrimPrefix(step.Name, "functions/")
		for _, m := range grantedObject.FindAllStringSubmatch(step.SQL, -1) {
			w.granted[m[1]] = true
		}
		for _, m := range offeredObjects.FindAllStringSubmatch(step.SQL, -1) {
			for _, name := range strings.FieldsFunc(m[2], func(r rune) bool { return strings.ContainsRune("-, \n", r) }) {
				if w.offers[room] == nil {
					w.offers[room] = map[string]bool{}
				}
				w.offers[room][name+" for "+m[1]] = true
			}
		}
		text := noCode.ReplaceAllString(step.SQL, "")
		found := definedObject.FindAllStringSubmatchIndex(text, -1)
		for i, at := range found {
			end := len(text)
			if i+1 < len(found) {
				end = found[i+1][0]
			}
			d := definition{name: text[at[4]:at[5]], room: room, file: file, text: text[at[5]:end]}
			w.definitions = append(w.definitions, d)
			w.functions[d.name] = w.functions[d.name] || text[at[2]:at[3]] == "function"
			if step.Name == schema.Hooks {
				w.hooks[d.name] = 0
			} else if _, isHook := w.hooks[d.name]; isHook {
				w.hooks[d.name]++
			}
			if !slices.Contains(w.homes[d.name], room) {
				w.homes[d.name] = append(w.homes[d.name], room)
			}
		}
	}
	return w
}

func (w walls) breaches() []string {
	var all []string
	for _, hook := range slices.Sorted(maps.Keys(w.hooks)) {
		if w.hooks[hook] == 0 {
			all = append(all, fmt.Sprintf("nothing above core answers the hook %s", hook))
		} else if w.hooks[hook] > 1 {
			all = append(all, fmt.Sprintf("the hook %s is answered twice", hook))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.homes)) {
		if _, isHook := w.hooks[name]; !isHook && len(w.homes[name]) > 1 {
			all = append(all, fmt.Sprintf("%s stands in %s, and is no hook", name, strings.Join(w.homes[name], " and ")))
		}
	}
	used := map[string]bool{}
	for _, d := range w.definitions {
		for _, call := range calledObject.FindAllStringSubmatch(d.text, -1) {
			if breach := w.breach(d, call[1], used); breach != "" {
				all = append(all, breach)
			}
		}
	}
	for _, room := range slices.Sorted(maps.Keys(w.offers)) {
		for _, offer := range slices.Sorted(maps.Keys(w.offers[room])) {
			if !used[room+" "+offer] {
				all = append(all, fmt.Sprintf("%s/map.sql offers %s, and none of them calls it", room, offer))
			}
		}
	}
	return slices.Compact(all)
}

// breach tells how a call breaks a wall, if it does, and notes the offer that it uses.
func (w walls) breach(d definition, called string, used map[string]bool) string {
	homes := w.homes[called]
	if len(homes) == 0 || called == d.name || slices.Contains(homes, d.room) {
		return "" // a table, or of this room
	}
	_, isHook := w.hooks[called]
	home, caller := homes[0], fmt.Sprintf("%s (%s)", d.name, d.file)
	floor, _, _ := strings.Cut(d.room, "/")
	switch offer := called + " for " + floors[floor]; {
	case slices.Index(schema.Folders(), home) > slices.Index(schema.Folders(), d.room):
		return fmt.Sprintf("%s calls %s of %s, which is above %s", caller, called, home, d.room)
	case floor == "room" && strings.HasPrefix(home, "room/"):
		return fmt.Sprintf("%s calls %s of %s: rooms do not know each other", caller, called, home)
	case !isHook && w.functions[called] && !w.granted[called] && !w.offers[home][offer]:
		return fmt.Sprintf("%s calls %s, which %s/map.sql does not offer for %s", caller, called, home, floors[floor])
	default:
		used[home+" "+offer] = true
		return ""
	}
}
