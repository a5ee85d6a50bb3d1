package server

import "strings"

// A person signs in with a token, goes where the link led, and signs out.
func walkSignIn(p *person) {
	secret := p.token(p.T, "read", "admin")
	p.exec(p.T, "select posthorn.define_group('default', 'billing')")
	p.visit("/ui/default/group?name=billing")
	p.fill("Token", "ph_wrong")
	p.click("Sign in")
	p.sees("it is malformed")
	p.fill("Token", secret)
	p.click("Sign in")
	p.sees("Group billing", "<b>ops</b>")
	p.finds("select count(*) = 1 from posthorn.list_tokens('default') where last_used_at is not null")
	p.click("Pause")
	p.finds("select paused from posthorn.groups")
	p.finds("select count(*) = 1 from posthorn.audit where actor like '%ops%'")
	p.head("Sign out")
	p.sees("Sign in")
	p.visit("/")
	p.sees("Sign in")
	p.seesNone("billing")
}

// A token with the scope read shows every page, and no button that changes anything.
func walkReadOnly(p *person) {
	p.shop(p.T)
	p.signIn("read")
	for _, path := range p.pagesWithin(p.T, p.signedIn("read"), 2) {
		p.visit(path)
		if buttons := p.ask("buttons"); buttons != "" {
			p.Errorf("%s shows the buttons %s", path, buttons)
		}
	}
	p.goTo("Groups")
	p.clickIn("billing", "billing")
	p.sees("Group billing")
	p.seesNone("Move it")
	p.visit("/ui/default/group/seek?name=billing&to=end")
	p.sees("the token lacks the scope admin", "Sign in with one that has it.")
	p.recorded()
}

// signedIn is a client that is signed in with a new token.
func (p *person) signedIn(scopes ...string) *visitor {
	p.Helper()
	b := p.served.visit(p.T)
	b.signIn(p.token(p.T, scopes...))
	return b
}

// A token is made and shown once. Another one is revoked; after that its page asks for
// another one.
func walkTokens(p *person) {
	p.signIn("read", "admin")
	reader := p.signedIn("read")
	p.goTo("Tokens")
	p.click("Make a token…")
	p.fill("Name. Who will have it", "shop-backend")
	p.choose("read", "yes")
	p.click("Save")
	p.sees("for namespace default; it is shown only this once.", "ph_")
	p.click("Back")
	p.seesIn("3 shop-backend", "default", "read", "live")
	p.clickIn("2 <b>ops</b>", "Revoke …")
	p.sees("Revoke token 2, <b>ops</b>?")
	p.click("Back")
	p.finds("select bool_and(revoked_at is null) from posthorn.list_tokens('default')")
	p.clickIn("2 <b>ops</b>", "Revoke …")
	p.click("Revoke")
	p.sees("Token <b>ops</b> is revoked.")
	p.seesIn("2 <b>ops</b>", "revoked")
	p.finds("select array_agg(id) = '{2}' from posthorn.list_tokens('default') where revoked_at is not null")
	p.recorded("create-token shop-backend 1", "revoke-token 2 1")
	p.forget()
	reader.get("/").wantPage(p.T, 401, `id="sign-in"`)
}

// The audit log shows each action with the name of the token and the number of things.
func walkAudit(p *person) {
	p.bury(p.T, "billing", 12, "503 from bank.example")
	p.signIn("read", "admin")
	p.goTo("Audit log")
	p.sees("Nothing was done yet.")
	p.goTo("Groups")
	p.clickIn("billing", "Pause")
	p.goTo("Dead letters")
	p.clickIn("503 from bank.example", "Discard…")
	p.click("Discard 12")
	p.sees("12 of 12", "done")
	p.click("Audit log")
	p.seesIn("pause-group", "<b>ops</b>", "billing", "done")
	p.seesIn("discard-dead-letters", "<b>ops</b>", "billing", "Handler error", "12", "done")
	p.click("discard-dead-letters")
	p.sees("12 of 12", "<b>ops</b>")
	p.recorded("pause-group billing 1", "discard-dead-letters billing 12")
	p.finds("select count(distinct actor) = 1 from posthorn.audit")
}

// A person chooses another namespace, and acts in that one.
func walkNamespaces(p *person) {
	p.exec(p.T, "select posthorn.define_namespace('shop')")
	p.exec(p.T, "select posthorn.define_group('default', 'billing'), posthorn.define_group('shop', 'mail')")
	p.visit("/")
	p.seesIn("billing", "0")
	p.choose("Namespace", "shop")
	p.seesIn("mail", "0")
	p.arrive()
	if text := p.text(); strings.Contains(text, "billing") || !strings.Contains(text, "/ui/shop") {
		p.Errorf("the page of namespace shop is %s", text)
	}
	p.goTo("Groups")
	p.clickIn("mail", "Pause")
	p.finds("select array_agg(name) = '{mail}' from posthorn.groups where paused")
	p.goTo("Namespaces")
	p.click("Make a namespace…")
	p.fill("Name", "office")
	p.click("Define")
	p.sees("Namespace office is defined.")
	p.finds("select count(*) = 1 from posthorn.namespaces where namespace = 'office'")
	p.clickIn("office", "Close…")
	p.fill("Moved to. The database where it goes on, as refused programs read it", "db2")
	p.click("Close")
	p.sees("Namespace office is closed, and nothing from before can write to it.")
	p.seesIn("office", "closed", "moved to db2")
	p.clickIn("office", "Open")
	p.sees("Namespace office is open.")
	p.finds("select count(*) = 1 from posthorn.namespaces where namespace = 'office' and closed_at is null")
}
