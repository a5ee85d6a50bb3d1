package send

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

// sign makes the header webhook-signature: one signature for each secret, so that receivers may change from one to the other
// at any time of a rotation.
func sign(secrets []string, id string, at time.Time, body []byte) (string, error) {
	if len(secrets) == 0 {
		return "", errors.New("there is no secret to sign with")
	}
	message := append(fmt.Appendf(nil, "%s.%d.", id, at.Unix()), body...)
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		var err error
		if signatures[i], err = signature(secret, message); err != nil {
			return "", err
		}
	}
	return strings.Join(signatures, " "), nil
}

// errSecret says nothing about the secret, which must not be shown.
var errSecret = errors.New("a secret cannot be read: it must be whsec_ and 24 to 64 bytes, or whsk_ and an ed25519 key, in base64")

func signature(secret string, message []byte) (string, error) {
	kind, encoded, _ := strings.Cut(secret, "_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	case err != nil:
		return "", errSecret
	case kind == "whsec" && len(key) >= 24 && len(key) <= 64:
		mac := hmac.New(sha256.New, key)
		mac.Write(message)
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
	case kind == "whsk" && len(key) == ed25519.SeedSize:
		key = ed25519.NewKeyFromSeed(key)
	case kind == "whsk" && len(key) == ed25519.PrivateKeySize:
	default:
		return "", errSecret
	}
	return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(key, message)), nil
}
