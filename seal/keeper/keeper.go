// Package keeper opens what wraps the data keys of package seal: a local key file,
// or a key management service.
//
//	file:///etc/posthorn/seal.key     a file that NewKeyFile made
//	base64key://…                     the same key, for programs that get secrets by environment
//	awskms://alias/payments?region=…  and others that gocloud.dev/secrets knows
//
// The first two are built in. For others the program imports their package, which
// registers the scheme, such as gocloud.dev/secrets/awskms. So the SDKs of services
// reach only programs that use them.
package keeper

import (
	"context"
	"errors"
	"io"
	"net/url"
)

// Keeper is a seal.Keeper that is open until it is closed.
type Keeper interface {
	Encrypt(ctx context.Context, plaintext []byte) ([]byte, error)
	Decrypt(ctx context.Context, ciphertext []byte) ([]byte, error)
	io.Closer
}

// Open opens a keeper by URL. The caller closes it. What opens may still refuse to
// encrypt or decrypt: key services are asked when they are used.
func Open(ctx context.Context, rawURL string) (Keeper, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("open keeper: that is no URL") // the cause would repeat it, and there may be a key in it
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
