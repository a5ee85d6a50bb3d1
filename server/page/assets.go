package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var assetFiles embed.FS

// assetTypes are the assets that there are, by their endings.
var assetTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// assetHashes has a part of the hash of each asset. It is in the address, so that
// browsers keep an asset for good, and load it anew when it has changed.
var assetHashes = func() map[string]string {
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		panic(err)
	}
	hashes := map[string]string{}
	for _, e := range entries {
		content, err := assetFiles.ReadFile("assets/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		hashes[e.Name()] = hex.EncodeToString(sum[:6])
	}
	return hashes
}()

// assetLink is the address of an asset.
func assetLink(name string) string { return Root + own + "/" + assetHashes[name] + "/" + name }

// OwnsAsset tells whether a path is that of an asset, which belong to no database.
func OwnsAsset(path string) bool {
	name, ok := strings.CutPrefix(path, Root+own+"/")
	_, name, isIn := strings.Cut(name, "/")
	return ok && isIn && assetHashes[name] != ""
}

// ServeAsset sends an asset.
func ServeAsset(w http.ResponseWriter, r *http.Request) {
	serveAsset(w, r, strings.TrimPrefix(r.URL.Path, Root+own+"/"))
}

func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	hash, name, _ := strings.Cut(name, "/")
	content, err := assetFiles.ReadFile("assets/" + name)
	if err != nil || hash != assetHashes[name] {
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", assetTypes[path.Ext(name)])
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Content-Security-Policy", policy)
	_, _ = w.Write(content) // nobody is there to hear of it
}
