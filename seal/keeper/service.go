package keeper

import (
	"context"
	"fmt"
	"net/url"

	"gocloud.dev/secrets"
)

func openService(ctx context.Context, u *url.URL) (Keeper, error) {
	if !secrets.DefaultURLMux().ValidKeeperScheme(u.Scheme) {
		return nil, fmt.Errorf("open keeper: scheme %q is not known; the program has to import its package, such as gocloud.dev/secrets/awskms", u.Scheme)
	}
	keeper, err := secrets.DefaultURLMux().OpenKeeperURL(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("open keeper of scheme %q: %w", u.Scheme, err)
	}
	return keeper, nil
}
