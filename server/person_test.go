package server

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/posthorn/posthorn/internal/test/await"
)

// person looks at the page of a server with a tab of a browser. Links, buttons and fields
// are found as people find them: by the text on them, where it is unique on the page or
// in the row that is named.
type person struct {
	*served
	*testing.T
	tab *tab
}

// newPerson opens a tab at the width of a screen. At most one Options may be given.
func newPerson(t *testing.T, chromium *browser, width int64) *person {
	t.Helper()
	p := &person{served: serve(t), T: t}
	p.tab = openTab(t, chromium, width)
	t.Cleanup(func() { p.tab.wantNoTrouble(t, p.served) })
	return p
}

// personScript defines person, the functions of the page's side.
//
//go:embed person.js
var personScript string

// ask evaluates a call of a function of personScript. Between two pages it waits.
func (p *person) ask(function string, arguments ...any) (answer string) {
	p.Helper()
	raw, err := json.Marshal(append([]any{}, arguments...))
	if err != nil {
		p.Fatal(err)
	}
	call := fmt.Sprintf("(() => { %s; return %s(...%s) })()", personScript, function, raw)
	ctx, cancel := context.WithTimeout(p.tab.ctx, await.Limit)
	defer cancel()
	for {
		err := chromedp.Run(ctx, chromedp.Evaluate(call, &answer))
		if err == nil {
			return answer
		}
		if thrown := (*runtime.ExceptionDetails)(nil); errors.As(err, &thrown) || ctx.Err() != nil {
			p.Fatalf("%s %q: %v", function, arguments, err)
		}
		await.Pause()
	}
}

// must fails the test unless a function of personScript answers "".
func (p *person) must(function string, arguments ...any) {
	p.Helper()
	if answer := p.ask(function, arguments...); answer != "" {
		p.Fatalf("%s %q: %s\n%s", function, arguments, answer, p.text())
	}
}

// until waits until a function of personScript answers "".
func (p *person) until(function string, arguments ...any) {
	p.Helper()
	deadline := time.Now().Add(await.Limit)
	for {
		answer := p.ask(function, arguments...)
		if answer == "" {
			return
		}
		if time.Now().After(deadline) {
			p.Fatalf("%s %q: still %s\n%s", function, arguments, answer, p.text())
		}
		time.Sleep(looks)
	}
}

// looks is the pause between two looks at the page.
const looks = 20 * time.Millisecond

// text returns the text of the page.
func (p *person) text() (text string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.tab.ctx), 10*time.Second)
	defer cancel()
	if err := chromedp.Run(ctx, chromedp.Evaluate("location.href + '\\n' + (document.querySelector('main') ?? document.body).innerText", &text)); err != nil {
		return err.Error()
	}
	return text
}

// visit types an address.
func (p *person) visit(path string) {
	p.Helper()
	p.do(chromedp.Navigate(p.url + path))
	p.arrive()
}

// do lets the browser do something.
func (p *person) do(action chromedp.Action) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.tab.ctx, await.Limit)
	defer cancel()
	if err := chromedp.Run(ctx, action); err != nil {
		p.Fatal(err)
	}
}

// arrive waits until the next page is complete, and checks its layout.
func (p *person) arrive() {
	p.Helper()
	p.until("arrived")
	p.must("layout")
}

// goTo clicks an entry of the navigation.
func (p *person) goTo(entry string) {
	p.Helper()
	p.must("click", entry, "", "header nav")
	p.arrive()
}

// click clicks the link or button with a text, and waits for the page that follows.
func (p *person) click(name string) {
	p.Helper()
	p.must("click", name, "", "main")
	p.arrive()
}

// clickIn is click within the row or box that contains a text.
func (p *person) clickIn(row, name string) {
	p.Helper()
	p.must("click", name, row, "main")
	p.arrive()
}

// unfold clicks on a text that shows more.
func (p *person) unfold(name string) {
	p.Helper()
	p.must("unfold", name)
}

// fill types a text into the field with a label, instead of its content.
func (p *person) fill(label, text string) {
	p.Helper()
	for p.field(label) != text {
		p.must("focus", label)
		p.do(input.InsertText(text))
	}
}

// choose chooses an option of the field with a label, or a time; yes ticks a box.
func (p *person) choose(label, value string) {
	p.Helper()
	p.must("choose", label, value)
}

// press presses a key.
func (p *person) press(key string) {
	p.Helper()
	p.do(chromedp.KeyEvent(key))
}

// field returns the content of the field with a label.
func (p *person) field(label string) string {
	p.Helper()
	return p.ask("value", label)
}

// sees waits until the page shows each of the texts. A live page may show them later.
func (p *person) sees(texts ...string) {
	p.Helper()
	for _, text := range texts {
		p.until("shows", text)
	}
}

// seesIn waits until one row or box shows each of the texts.
func (p *person) seesIn(row string, texts ...string) {
	p.Helper()
	p.until("showsIn", row, texts)
}

// inSight fails the test unless each of the texts is shown without scrolling sideways.
func (p *person) inSight(texts ...string) {
	p.Helper()
	for _, text := range texts {
		p.must("inSight", text)
	}
}

// seesNone fails the test if the page shows one of the texts.
func (p *person) seesNone(texts ...string) {
	p.Helper()
	for _, text := range texts {
		if p.ask("shows", text) == "" {
			p.Errorf("the page shows %q:\n%s", text, p.text())
		}
	}
}

// finds waits until a query of the database yields true.
func (p *person) finds(query string) {
	p.Helper()
	p.await(p.T, query, query)
}

// head clicks a button in the head of the page.
func (p *person) head(name string) {
	p.Helper()
	p.must("click", name, "", "header")
	p.arrive()
}

// signIn types the secret of a new token with these scopes.
func (p *person) signIn(scopes ...string) {
	p.Helper()
	secret := p.token(p.T, scopes...)
	p.forget()
	p.visit("/")
	p.fill("Token", secret)
	p.click("Sign in")
}

// recorded fails the test unless the audit log has these actions, each as name, subject
// and number of things, the oldest first, and no others.
func (p *person) recorded(want ...string) {
	p.Helper()
	p.finds("select not exists (select from posthorn.audit where ended_at is null)")
	var got []string
	err := p.ph.Pool().QueryRow(p.Context(), `select coalesce(array_agg(concat_ws(' ', action, nullif(subject, ''), done) order by id), '{}') from posthorn.audit`).Scan(&got)
	if err != nil {
		p.Fatal(err)
	}
	equal(p.T, "audit log", got, append([]string{}, want...))
}
