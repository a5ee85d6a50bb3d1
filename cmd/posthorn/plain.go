package main

import (
	"fmt"
	"io"
	"sync"
	"unicode/utf8"
)

// plain is the stream that all output of the program goes through. Payloads, errors and
// names come from anybody, and control characters in them could rewrite the
// screen of an operator, so they are printed as JSON writes them: \u001b.
// Within the strings of JSON that means the same as before.
type plain struct {
	mu   sync.Mutex
	w    io.Writer
	rest []byte // the beginning of a character whose end has not come yet
}

func (p *plain) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	shown := text
	if len(p.rest) > 0 || !isPlain(text) {
		shown = p.show(text)
	}
	if _, err := p.w.Write(shown); err != nil {
		return 0, err
	}
	return len(text), nil
}

// isPlain reports that text is printable ASCII in lines, as most of it is.
func isPlain(text []byte) bool {
	for _, b := range text {
		if b < ' ' && b != '\n' && b != '\t' || b >= 0x7f {
			return false
		}
	}
	return true
}

func (p *plain) show(text []byte) []byte {
	text = append(p.rest, text...)
	shown := make([]byte, 0, len(text)+16)
	for len(text) > 0 && utf8.FullRune(text) {
		char, size := utf8.DecodeRune(text)
		switch {
		case char == '\r': // between the parts of JSON, it is a space
			shown = append(shown, ' ')
		case controls(char):
			shown = fmt.Appendf(shown, `\u%04x`, char)
		default:
			shown = utf8.AppendRune(shown, char) // bytes that are no character become U+FFFD
		}
		text = text[size:]
	}
	p.rest = append([]byte(nil), text...)
	return shown
}

// controls reports that a terminal obeys the character instead of showing it:
// control characters, and those that change the direction of the text around them.
func controls(char rune) bool {
	switch {
	case char == '\n' || char == '\t':
		return false
	case char < ' ', 0x7f <= char && char < 0xa0:
		return true
	}
	return 0x202a <= char && char <= 0x202e || 0x2066 <= char && char <= 0x2069
}

// terminalOf returns the stream below a plain one, for control characters of the
// program's own, such as those that clear the screen.
func terminalOf(w io.Writer) io.Writer {
	if p, ok := w.(*plain); ok {
		return p.w
	}
	return w
}
