package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Texts that others wrote, such as types, keys, errors and payloads, may hold anything.
// These functions show them: as text, with characters that cannot be seen, or that turn
// the direction of the text behind them, written out; and cut where they are long.
const (
	shortText = 80   // characters, in a table
	someText  = 400  // in a sentence
	someLines = 4000 // in a block
	mostText  = 4 << 20
)

// short is a text in a table: its first line, or the beginning of it. The whole is on the page of the thing.
func short(value any) template.HTML {
	s := plain(value)
	beginning := cut(firstLine(s), shortText)
	if beginning == s {
		return "<bdi>" + visible(s, false) + "</bdi>"
	}
	return `<bdi class="cut" title="` + template.HTML(template.HTMLEscapeString(inTitle(s, someText))) + `">` + visible(beginning, false) + "…</bdi>"
}

// text is a text in a cell or in a paragraph of its own: its first line, with a way to see all of it.
func text(value any) template.HTML {
	s := plain(value)
	beginning := cut(firstLine(s), someText)
	if beginning == s {
		return "<bdi>" + visible(s, false) + "</bdi>"
	}
	return "<bdi>" + visible(beginning, false) + "…</bdi>" + rest(s)
}

// lines is a text of many lines, such as an error with its stack.
func lines(value any) template.HTML {
	s := plain(value)
	beginning := cut(s, someLines)
	if beginning == s {
		return `<pre tabindex="0"><bdi>` + visible(s, true) + "</bdi></pre>"
	}
	return `<pre tabindex="0"><bdi>` + visible(beginning, true) + "…</bdi></pre>" + rest(s)
}

// document is JSON, indented.
func document(raw json.RawMessage) template.HTML { return lines(indented(raw)) }

// indented is JSON with its lines indented. Characters that cannot be seen are escaped as
// JSON has it, so that they are visible in an editor.
func indented(raw json.RawMessage) string {
	var lines bytes.Buffer
	if json.Indent(&lines, raw, "", "  ") != nil {
		return string(raw)
	}
	var b strings.Builder
	for _, r := range lines.String() {
		switch high, low := utf16.EncodeRune(r); {
		case !isHidden(r) || r == '\n':
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func rest(s string) template.HTML {
	all := cut(s, mostText)
	return template.HTML(`<details class="all"><summary>show all `+count(utf8.RuneCountInString(s))+` characters</summary><pre tabindex="0"><bdi>`) +
		visible(all, true) + "</bdi></pre></details>"
}

// firstLine returns the first line of a text that is not empty. Of an error it is the message, and the stack follows.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimLeft(s, "\r\n"), "\n")
	return strings.TrimRight(line, "\r")
}

// cut returns at most the first n characters of a text.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// visible escapes a text for HTML. With lines, line ends and tabs stay.
func visible(s string, lines bool) template.HTML {
	var b strings.Builder
	shown := 0 // up to here it is in b
	for i, r := range s {
		broken := r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD")
		if !broken && (!isHidden(r) || lines && (r == '\n' || r == '\t')) {
			continue
		}
		b.WriteString(template.HTMLEscapeString(s[shown:i]))
		if broken {
			fmt.Fprintf(&b, `<span class="ctl">\x%02x</span>`, s[i])
			shown = i + 1
		} else {
			b.WriteString(`<span class="ctl">` + written(r) + `</span>`)
			shown = i + utf8.RuneLen(r)
		}
	}
	b.WriteString(template.HTMLEscapeString(s[shown:]))
	return template.HTML(b.String())
}

// isHidden: control characters, marks that turn the direction of text, characters of
// no width, separators of lines, and those that no font has.
func isHidden(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co)
}

func written(r rune) string {
	switch {
	case r == '\t':
		return `\t`
	case r == '\r':
		return `\r`
	case r > 0xffff:
		return fmt.Sprintf(`\u{%x}`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// inTitle is a text where HTML has no elements: in titles and attributes, which show the lines of a text.
func inTitle(value any, most int) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(cut(plain(value), most), "\uFFFD") {
		if isHidden(r) && r != '\n' && r != '\t' {
			b.WriteString(written(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// plain is a value as text: "" for nil and zero numbers.
func plain(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case *string:
		if v == nil {
			return ""
		}
		return *v
	case []byte:
		return string(v)
	case json.RawMessage:
		return string(v)
	case int:
		return number(int64(v))
	case int64:
		return number(v)
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprint(value)
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
