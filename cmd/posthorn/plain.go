package main

import (
	"fmt"
	"io"
	"sync"
	"unicode/utf8"
)

// plain is a stream for all output of the program. Control characters in payloads,
// errors and names could rewrite an operator's screen, so plain writes them as JSON
// does: \u001b. In strings of JSON the meaning stays the same.
type plain struct {
	mu   sync.Mutex
	w    io.Writer
	rest []byte // the beginning of a character that is not complete yet
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

// isPlain reports whether text is printable ASCII in lines, the common case.
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
		case char == '\r': // white space in JSON
			shown = append(shown, ' ')
		case controls(char):
			shown = fmt.Appendf(shown, `\u%04x`, char)
		default:
			shown = utf8.AppendRune(shown, char) // invalid bytes become U+FFFD
		}
		text = text[size:]
	}
	p.rest = append([]byte(nil), text...)
	return shown
}

// controls reports whether a terminal executes the character instead of showing it:
// control characters, and those that change the direction of text.
func controls(char rune) bool {
	switch {
	case char == '\n' || char == '\t':
		return false
	case char < ' ', 0x7f <= char && char < 0xa0:
		return true
	}
	return 0x202a <= char && char <= 0x202e || 0x2066 <= char && char <= 0x2069
}

// terminalOf returns the stream below a plain one. It is for control characters that the
// program writes itself, for example to clear the screen.
func terminalOf(w io.Writer) io.Writer {
	if p, ok := w.(*plain); ok {
		return p.w
	}
	return w
}
