// Package token makes and recognises API tokens. It knows their form; who holds
// one and what it allows is in the database.
//
// A token looks like ph_k3J9xQ2m_ and 49 more letters and digits: 256 random
// bits, and a checksum. The form is for scanners that look for leaked secrets;
// the checksum lets them, and us, tell a token from what only looks like one
// without asking anybody.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"regexp"
	"strings"
)

// Token is an API token. Prefix is for everyone's eyes; Secret, which begins
// with it, is for its holder alone.
type Token struct {
	Prefix string
	Secret string
}

const (
	prefixDigits   = 8
	secretDigits   = 43 // 62^43 > 2^256
	checksumDigits = 6  // 62^6 > 2^32
)

var form = regexp.MustCompile(`^ph_[0-9A-Za-z]{8}_[0-9A-Za-z]{49}$`)

// New makes a token.
func New() Token {
	prefix := "ph_" + random(prefixDigits)
	text := prefix + "_" + random(secretDigits)
	return Token{Prefix: prefix, Secret: text + checksum(text)}
}

// Parse recognises a token; ok says whether it is one.
func Parse(text string) (t Token, ok bool) {
	if !form.MatchString(text) {
		return Token{}, false
	}
	body, sum := text[:len(text)-checksumDigits], text[len(text)-checksumDigits:]
	if checksum(body) != sum {
		return Token{}, false
	}
	return Token{Prefix: text[:len("ph_")+prefixDigits], Secret: text}, true
}

// Hash is what the database knows of the token.
func (t Token) Hash() [sha256.Size]byte { return sha256.Sum256([]byte(t.Secret)) }

var anywhere = regexp.MustCompile(`(ph_[0-9A-Za-z]{8})_[0-9A-Za-z]{10,}`)

// Hide shortens what looks like a token, whole or in part, in a text that is to
// be logged.
func Hide(text string) string { return anywhere.ReplaceAllString(text, "${1}_…") }

// String shows the part that is no secret, also when a token is logged by mistake.
func (t Token) String() string { return t.Prefix + "_…" }

// GoString is String, for %#v.
func (t Token) GoString() string { return t.String() }

func random(digits int) string {
	all := new(big.Int).Exp(big.NewInt(62), big.NewInt(int64(digits)), nil)
	n, err := rand.Int(rand.Reader, all)
	if err != nil {
		panic(err) // crypto/rand says that it never happens
	}
	return base62(n, digits)
}

func checksum(text string) string {
	return base62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(text)))), checksumDigits)
}

// base62 pads with zeros to the number of digits.
func base62(n *big.Int, digits int) string {
	text := n.Text(62)
	if len(text) > digits {
		panic("token: more bits than digits")
	}
	return strings.Repeat("0", digits-len(text)) + text
}
