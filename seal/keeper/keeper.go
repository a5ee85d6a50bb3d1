// Package keeper opens the keepers that wrap the data keys of package seal: a local
// key file, or a key management service.
//
//	file:///etc/posthorn/seal.key     a file that NewKeyFile made
//	base64key://…                     the same key, for programs that get secrets by environment
//	awskms://alias/payments?region=…  and others of gocloud.dev/secrets
//
// The first two are built in. For the others the program imports a package that
// registers the scheme, such as gocloud.dev/secrets/awskms. So only programs that use
// a key service contain its SDK.
package keeper

import (
	"context"
	"errors"
	"io"
	"net/url"
)

// Keeper is a seal.Keeper that must be closed after use.
type Keeper interface {
	Encrypt(ctx context.Context, plaintext []byte) ([]byte, error)
	Decrypt(ctx context.Context, ciphertext []byte) ([]byte, error)
	io.Closer
}

// Open opens a keeper by URL. The caller must close it. Open does not call the key
// service, so the first encryption or decryption may still fail.
func Open(ctx context.Context, rawURL string) (Keeper, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("open keeper: invalid URL") // the cause would repeat the text, which may contain a key
	}
	switch u.Scheme {
	case "":
		return nil, errors.New("open keeper: the URL has no scheme; a key file is file:///path/to/it")
	case "file":
		if u.Host != "" || u.Path == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, errors.New("open keeper: the URL of a key file has three slashes and an absolute path: file:///path/to/it")
		}
		return openKeyFile(u.Path)
	case keyScheme:
		return openKey(rawURL)
	}
	return openService(ctx, u)
}
