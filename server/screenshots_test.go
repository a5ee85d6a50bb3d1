package server

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// scripts/screenshots sets it.
var screenshots = flag.String("screenshots", "", "write pictures of the page into this directory")

// The pictures in the docs are those of a shop with some trouble.
func TestScreenshots(t *testing.T) {
	t.Parallel()
	if *screenshots == "" {
		t.Skip("scripts/screenshots makes the pictures in the docs")
	}
	s := serve(t)
	for _, sql := range []string{
		`select posthorn.define_group('default', 'billing', '{"attempts": 1}')`,
		`select posthorn.define_group('default', 'mail')`,
		`select posthorn.define_group('default', 'search')`,
		`select posthorn.define_projection('default', 'ledger')`,
		// The settings of a server for tests are no trouble of the shop.
		`create or replace function posthorn.examine_settings() returns table (level text, namespace text, subject text, found text, advice text)
			language sql stable as $$ select null::text, null::text, null::text, null::text, null::text where false $$`,
		`insert into posthorn.samples (namespace_id, at, seq, seconds, published, handled, failed, groups, positions, lags, passed)
			select n.id, now() - i * interval '1 minute', 0, 60, 60 * (1500 + 300 * sin(i / 6.0) + 90 * sin(i * 1.7)),
				60 * (5900 + 1200 * sin(i / 6.0 - 0.2) + 300 * sin(i * 1.3)), case when i < 14 then 60 * (50 + 12 * sin(i * 2.1)) else 0 end, '{}', '{}', '{}', '{}'
			from posthorn.namespaces n, generate_series(1, 59) i where n.namespace = 'default'`,
		`select posthorn.schedule('default', 'nightly-report', '0 2 * * *', 'report.due', timezone => 'Europe/Berlin')`,
		`select posthorn.register_node('default', 'web-7f3a', 'web')`,
		`select posthorn.publish('default', 'order.placed', json_build_object('order', 1000 + i, 'customer', 'C-' || i % 7, 'total', 19.9 * i), stream => 'orders', key => 'C-' || i % 7, tags => '{web}') from generate_series(1, 240) i`,
		`select posthorn.enqueue('default', 'Send welcome mail', json_build_object('user', i), tags => '{mail}', max_retries => 0) from generate_series(1, 40) i`,
		`select posthorn.fail_job(j.id, 'web-7f3a', 'mail server: connection refused') from posthorn.claim_jobs('default', 'web-7f3a', '{mail}', 3) j`,
	} {
		s.exec(t, sql)
	}
	for range 2 {
		lease := s.claim(t, "billing", `{"max_events":40,"wait":60}`)
		failures := []map[string]any{}
		for _, e := range lease.Events {
			text := "charge: 503 Service Unavailable from bank.example"
			if e.ID%9 == 0 {
				text = "charge: card expired"
			}
			failures = append(failures, map[string]any{"event": e.ID, "permanent": true, "error": text})
		}
		s.call(t, "POST", fmt.Sprintf("/v1/leases/%d/settle", lease.Lease), map[string]any{"attempt": lease.Attempt, "failures": failures}).want(t, 204)
	}
	tab := openTab(t, startChromium(t), 1120)
	for name, path := range map[string]string{"overview": "/", "event": "/ui/default/event?id=9", "dead-letters": "/ui/default/dead-letters"} {
		for suffix, width := range map[string]int64{"": 1120, "-phone": 390} {
			var picture []byte
			err := chromedp.Run(tab.ctx,
				chromedp.EmulateViewport(width, 760),
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}),
				chromedp.Navigate(s.url+path), chromedp.WaitVisible("h1"), chromedp.CaptureScreenshot(&picture),
			)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(*screenshots, name+suffix+".png"), picture, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
