package page

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// own is where things are that belong to no namespace: no namespace has this name.
const own = "-"

// The token itself is the session, so it works with any number of servers, and ends
// when the token does. No script can read the cookie, and no other site can have it
// sent. The form cookie must come along when another site links to a page; the token
// need not: see bare.Reload. Over TLS each name has the prefix safeCookie.
const (
	tokenCookie  = "posthorn_token"
	formCookie   = "posthorn_form"
	noticeCookie = "posthorn_notice"
)

// sameOrigin refuses forms that another site has sent.
var sameOrigin = http.NewCrossOriginProtection()

// serveOwn answers requests for assets and for signing in and out.
func (p *Pages) serveOwn(w http.ResponseWriter, r *http.Request, path string) {
	switch r.Method + " " + path {
	case "GET sign-in":
		p.askForToken(w, r, http.StatusOK, r.URL.Query().Get("next"), nil)
	case "POST sign-in":
		p.signIn(w, r)
	case "POST sign-out":
		p.signOut(w, r)
	case "GET namespace":
		http.Redirect(w, r, p.link(r.URL.Query().Get("name"), ""), http.StatusSeeOther)
	default:
		serveAsset(w, r, path)
	}
}

// admit lets a person in, or returns the error that says why not.
func (p *Pages) admit(w http.ResponseWriter, r *http.Request, namespace, path string) (*Request, error) {
	ctx, cancel := context.WithTimeout(r.Context(), p.Timeout)
	defer cancel()
	caller, err := p.Door.Admit(r.WithContext(ctx), namespace, p.cookieOf(r, tokenCookie))
	if err != nil {
		return nil, err
	}
	request := &Request{Caller: caller, pages: p, http: r, path: path, values: r.URL.Query()}
	if r.Method != http.MethodPost && p.cookieOf(r, formCookie) == "" {
		secret := rand.Text()
		http.SetCookie(w, p.newCookie(r, formCookie, secret, http.SameSiteLaxMode))
		r.AddCookie(&http.Cookie{Name: p.cookieName(r, formCookie), Value: secret})
	}
	request.notice = request.takeNotice(w)
	request.all, err = p.allNamespaces(ctx, caller)
	return request, err
}

// refuse asks for a token, after a request without a good one.
func (p *Pages) refuse(w http.ResponseWriter, r *http.Request, err error) {
	problem := p.Door.Problem(r.Context(), err)
	if problem.Status != http.StatusUnauthorized || r.Method != http.MethodGet {
		p.Fail(w, r, err)
		return
	}
	// A browser that comes from another site does not send the token's cookie. Coming
	// from this page, it does.
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") == "navigate" {
		p.write(w, r, http.StatusOK, "bare.html", &bare{Mount: p.Mount, Title: "One moment", Reload: true})
		return
	}
	if p.cookieOf(r, tokenCookie) == "" {
		err = nil // nothing was wrong yet
	}
	p.askForToken(w, r, http.StatusUnauthorized, p.Base()+r.URL.RequestURI(), err)
}

func (p *Pages) askForToken(w http.ResponseWriter, r *http.Request, status int, next string, err error) {
	page := &bare{Mount: p.Mount, Title: "Sign in", SignIn: true, Next: p.localPath(next)}
	if err != nil {
		page.Problem = p.Door.Problem(r.Context(), err)
	}
	p.write(w, r, status, "bare.html", page)
}

// signIn needs no form token: other sites are refused, and a forged sign-in would need a
// token.
func (p *Pages) signIn(w http.ResponseWriter, r *http.Request) {
	if err := p.readOwnForm(w, r); err != nil {
		p.Fail(w, r, err)
		return
	}
	secret, next := strings.TrimSpace(r.PostForm.Get("token")), r.PostForm.Get("next")
	done, wait := p.signIns.begin(addressOf(r.RemoteAddr))
	if wait > 0 {
		p.askToWait(w, r, next, wait)
		return
	}
	if _, err := p.Door.Admit(r, "", secret); err != nil {
		status := p.Door.Problem(r.Context(), err).Status
		done(status != http.StatusUnauthorized) // another status says nothing about the token
		p.askForToken(w, r, status, next, err)
		return
	}
	done(true)
	http.SetCookie(w, p.newCookie(r, tokenCookie, secret, http.SameSiteStrictMode))
	http.Redirect(w, r, p.localPath(next), http.StatusSeeOther)
}

func (p *Pages) askToWait(w http.ResponseWriter, r *http.Request, next string, wait time.Duration) {
	seconds := int(wait/time.Second) + 1
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	p.askForToken(w, r, http.StatusTooManyRequests, next, &Problem{
		Status: http.StatusTooManyRequests, Detail: "too many sign-ins from this address have failed",
		Hint: fmt.Sprintf("Try again in %d seconds.", seconds),
	})
}

func (p *Pages) signOut(w http.ResponseWriter, r *http.Request) {
	if err := p.readOwnForm(w, r); err != nil {
		p.Fail(w, r, err)
		return
	}
	p.expire(w, r, tokenCookie)
	http.Redirect(w, r, p.Base()+Root+own+"/sign-in", http.StatusSeeOther)
}

func (p *Pages) readOwnForm(w http.ResponseWriter, r *http.Request) error {
	if err := sameOrigin.Check(r); err != nil {
		return errOtherSite()
	}
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	if err := r.ParseForm(); err != nil {
		return invalid("the form could not be read", "")
	}
	return nil
}

func errOtherSite() error {
	return &Problem{
		Status: http.StatusForbidden, Detail: "the form was not sent from this page",
		Hint: "Reload the page and try again. Behind a proxy, let it pass the Host header on.",
	}
}

// formToken is in each form, so that only pages of this server can send forms.
func (p *Pages) formToken(r *http.Request) string {
	sum := sha256.Sum256([]byte("form " + p.cookieOf(r, formCookie)))
	return hex.EncodeToString(sum[:16])
}

func (p *Pages) checkForm(r *http.Request) error {
	if sameOrigin.Check(r) != nil || p.cookieOf(r, formCookie) == "" ||
		subtle.ConstantTimeCompare([]byte(r.PostForm.Get("form")), []byte(p.formToken(r))) != 1 {
		return errOtherSite()
	}
	return nil
}

// safeCookie begins the name of a cookie that browsers take from the host itself only, over
// TLS, and send to no other host: a neighbour under the same domain can neither set nor read it.
const safeCookie = "__Host-"

// cookieName is the name of a cookie for a request. Without TLS browsers would refuse the prefix.
func (m Mount) cookieName(r *http.Request, name string) string {
	if isSecure(r) {
		return safeCookie + m.cookie(name)
	}
	return m.cookie(name)
}

// isSecure tells whether the browser has sent the request over TLS, to the server or to a proxy
// in front of it.
func isSecure(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}

func (m Mount) cookieOf(r *http.Request, name string) string {
	c, err := r.Cookie(m.cookieName(r, name))
	if errors.Is(err, http.ErrNoCookie) || c == nil {
		return ""
	}
	return c.Value
}

func (m Mount) newCookie(r *http.Request, name, value string, site http.SameSite) *http.Cookie {
	return &http.Cookie{
		Name: m.cookieName(r, name), Value: value, Path: "/", HttpOnly: true, SameSite: site, Secure: isSecure(r),
	}
}

func (m Mount) expire(w http.ResponseWriter, r *http.Request, name string) {
	c := m.newCookie(r, name, "", http.SameSiteStrictMode)
	c.MaxAge = -1
	http.SetCookie(w, c)
}

// localPath keeps a path of the page, and makes anything else the overview, so that no
// link leads to another site after signing in.
func (m Mount) localPath(path string) string {
	if strings.HasPrefix(path, m.Base()+Root) && !strings.ContainsAny(path, "\\\r\n") && !strings.Contains(path, "//") {
		return path
	}
	return m.home()
}
