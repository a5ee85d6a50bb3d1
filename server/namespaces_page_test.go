package server

import (
	"net/url"
	"testing"
)

// A namespace is not deleted with one click: the page asks before. Only what has begun goes on at once.
func TestNamespacesPageAsksBeforeItDeletes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.exec(t, "select posthorn.define_namespace('shop')")
	s.exec(t, "select posthorn.close_namespace('shop')")
	s.exec(t, "select posthorn.await_closed('shop', '1 minute')")
	b := s.visit(t)
	b.get("/ui/default/namespaces").wantPage(t, 200, ">Delete…</a>").wantNone(t, "Keep only this", `action="/ui/default/namespace/delete"`)
	question := b.get("/ui/default/namespace/delete?name=shop").wantPage(t, 200, "Delete namespace shop with its events, jobs and everything else, for good?")
	s.exec(t, "select posthorn.delete_namespace('shop')")
	b.get("/ui/default/namespaces").wantPage(t, 200, "<button>Go on</button>", `action="/ui/default/namespace/delete"`)
	b.post(question, "/ui/default/namespace/delete", url.Values{"name": {"shop"}}).wantPage(t, 200, "Namespace shop is deleted")
}
