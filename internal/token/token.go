// Package token generates and parses API tokens. The database stores the owner
// and the rights of each token; this package does not know them.
//
// A token is ph_k3J9xQ2m_ followed by 49 letters and digits, which hold 256
// random bits and a checksum. Secret scanners can find leaked tokens by this
// pattern, and the checksum rules out look-alikes without a database query.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"regexp"
	"strings"
)

// Token is an API token. Prefix is public and identifies the token in lists and
// logs. Secret is the whole token, begins with Prefix, and is known to its owner
// only.
type Token struct {
	Prefix string
	Secret string
}

const (
	prefixDigits   = 8
	secretDigits   = 43 // 62^43 > 2^256
	checksumDigits = 6  // 62^6 > 2^32
)

var pattern = regexp.MustCompile(`^ph_[0-9A-Za-z]{8}_[0-9A-Za-z]{49}$`)

// New generates a random token.
func New() Token {
	prefix := "ph_" + random(prefixDigits)
	text := prefix + "_" + random(secretDigits)
	return Token{Prefix: prefix, Secret: text + checksum(text)}
}

// Parse parses the text of a token. ok is false if the pattern or the checksum
// does not match.
func Parse(text string) (t Token, ok bool) {
	if !pattern.MatchString(text) {
		return Token{}, false
	}
	body, sum := text[:len(text)-checksumDigits], text[len(text)-checksumDigits:]
	if checksum(body) != sum {
		return Token{}, false
	}
	return Token{Prefix: text[:len("ph_")+prefixDigits], Secret: text}, true
}

// Hash returns the SHA-256 hash of the secret. The database stores the hash, not
// the secret.
func (t Token) Hash() [sha256.Size]byte { return sha256.Sum256([]byte(t.Secret)) }

var redactable = regexp.MustCompile(`(ph_[0-9A-Za-z]{8})_[0-9A-Za-z]{10,}`)

// Hide redacts all tokens, whole or cut off, in a text that will be logged.
func Hide(text string) string { return redactable.ReplaceAllString(text, "${1}_…") }

// String returns the public prefix, so that printing a token never leaks its
// secret.
func (t Token) String() string { return t.Prefix + "_…" }

// GoString returns the same text as String, so that %#v does not leak the secret.
func (t Token) GoString() string { return t.String() }

func random(digits int) string {
	all := new(big.Int).Exp(big.NewInt(62), big.NewInt(int64(digits)), nil)
	n, err := rand.Int(rand.Reader, all)
	if err != nil {
		panic(err) // crypto/rand never returns an error
	}
	return base62(n, digits)
}

func checksum(text string) string {
	return base62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(text)))), checksumDigits)
}

// base62 formats n in base 62, padded with zeros to the number of digits.
func base62(n *big.Int, digits int) string {
	text := n.Text(62)
	if len(text) > digits {
		panic("token: more bits than digits")
	}
	return strings.Repeat("0", digits-len(text)) + text
}
