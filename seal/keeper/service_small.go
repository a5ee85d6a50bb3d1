//go:build small

package keeper

import (
	"context"
	"fmt"
	"net/url"
)

func openService(_ context.Context, u *url.URL) (Keeper, error) {
	return nil, fmt.Errorf("open keeper: scheme %q is not in this program, which was built small", u.Scheme)
}
