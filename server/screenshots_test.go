package server

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/posthorn/posthorn/posthorntest"
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
		`insert into posthorn.job_samples (namespace_id, at, tag, seconds, enqueued, completed, failed, waited, ran)
			select n.id, now() - i * interval '1 minute', t.tag, 60, t.jobs * (10 + 3 * sin(i / 5.0)), t.jobs * (10 + 3 * sin(i / 5.0 - 0.3)),
				case when i % 7 = 0 then t.jobs / 8 else 0 end, posthorn.time_counts(x.waited, x.weights), posthorn.time_counts(x.ran, x.weights)
			from posthorn.namespaces n, generate_series(1, 59) i,
				(values ('', 60, 900), ('mail', 30, 240), ('shipping', 16, 2600), ('report', 9, 8200), ('tenant:7', 5, 700)) t (tag, jobs, ms)
			cross join lateral (
				select array_agg((5 + j * (2 + sin(i / 6.0)))::float8) as waited, array_agg(t.ms * exp(sin(i + j * 1.3) / 2)::float8) as ran, array_agg(1::float8) as weights
				from generate_series(1, 20) j) x
			where n.namespace = 'default'`,
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
	s.tenSteps(t)
	tab := openTab(t, startChromium(t), 1120)
	for _, p := range pictures {
		for suffix, width := range map[string]int64{"": 1120, "-phone": 390} {
			takePicture(t, tab, s.url+p.path, width, p.height, "light", filepath.Join(*screenshots, p.name+suffix+".png"))
			if p.dark {
				takePicture(t, tab, s.url+p.path, width, p.height, "dark", filepath.Join(*screenshots, p.name+suffix+"-dark.png"))
			}
		}
	}
}

// pictures are the pages of which there are pictures.
var pictures = []struct {
	name, path string
	height     int64
	dark       bool // too
}{
	{"overview", "/", 760, true},
	{"event", "/ui/default/event?id=9", 760, false},
	{"dead-letters", "/ui/default/dead-letters", 760, false},
	{"job", "/ui/default/job?id=41", 1240, true},
	{"busy", "/ui/default/busy", 760, true},
	{"jobs", "/ui/default/jobs", 900, true},
	{"job-rates", "/ui/default/job-rates", 1000, true},
	{"schedule", "/ui/default/schedule/put?name=nightly-report", 900, true},
}

// takePicture writes a picture of a page.
func takePicture(t *testing.T, tab *tab, url string, width, height int64, scheme, file string) {
	t.Helper()
	var picture []byte
	err := chromedp.Run(tab.ctx,
		chromedp.EmulateViewport(width, height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.Navigate(url), chromedp.WaitVisible("h1"), chromedp.CaptureScreenshot(&picture),
	)
	if err == nil {
		err = os.WriteFile(file, inFewColours(t, picture), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// inFewColours returns a picture with 256 colours, which has a third of the bytes.
func inFewColours(t *testing.T, picture []byte) []byte {
	t.Helper()
	whole, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	counts, bounds := map[color.Color]int{}, whole.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[color.RGBAModel.Convert(whole.At(x, y))]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	few := image.NewPaletted(bounds, slices.Clone(colours[:min(len(colours), 160)]))
	for len(few.Palette) < min(len(colours), 256) { // those of few points that are unlike all others, such as a red word
		few.Palette = append(few.Palette, slices.MaxFunc(colours, func(a, b color.Color) int {
			return cmp.Compare(distance(a, few.Palette.Convert(a)), distance(b, few.Palette.Convert(b)))
		}))
	}
	places := map[color.Color]uint8{}
	for _, c := range colours {
		places[c] = uint8(few.Palette.Index(c))
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			few.SetColorIndex(x, y, places[color.RGBAModel.Convert(whole.At(x, y))])
		}
	}
	var small bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&small, few); err != nil {
		t.Fatal(err)
	}
	return small.Bytes()
}

// distance says how unlike two colours are.
func distance(a, b color.Color) (sum int64) {
	ar, ag, ab, _ := a.RGBA()
	br, bg, bb, _ := b.RGBA()
	for _, d := range []int64{int64(ar) - int64(br), int64(ag) - int64(bg), int64(ab) - int64(bb)} {
		sum += d * d
	}
	return sum
}

// tenSteps enqueues a job whose flow has ten steps, among them a sleep and a wait, and lets workers take some other things.
func (s *served) tenSteps(t *testing.T) {
	t.Helper()
	began := time.Now().Add(-time.Hour)
	after := func(seconds int, statements ...string) {
		t.Helper()
		s.at(t, began.Add(time.Duration(seconds)*time.Second), statements...)
	}
	take := func(worker string) string {
		return "select posthorn.claim_jobs('default', '" + worker + "', '{shipping}', lease_for => '1 hour')"
	}
	step := func(worker, name, result string) string {
		return "select posthorn.save_step(41, '" + worker + "', '" + name + "', '" + result + "')"
	}
	const due = "select posthorn.promote_jobs()"
	const await = "select posthorn.await_event(41, '%s', 'label', 'label.printed', 'order-1007', '1 day')"
	after(0, `select posthorn.enqueue('default', 'Ship order 1007', '{"order": 1007}', tags => '{shipping}')`)
	after(1, "select posthorn.enqueue('default', name, tags => '{later}', after => '{41}') from unnest('{Ask for a review, Close order 1007}'::text[]) name")
	after(40, take("web-7f3a"))
	after(90, step("web-7f3a", "reserve", `{"shelf": "B4"}`))
	after(120, "select posthorn.fail_job(41, 'web-7f3a', 'charge: 503 Service Unavailable from bank.example', retry_in => '5 minutes')")
	after(440, due, take("web-2c91"))
	after(470, step("web-2c91", "charge", `{"receipt": 77}`))
	after(500, step("web-2c91", "invoice", `{"number": "2026-1007"}`))
	after(505, "select posthorn.sleep_job(41, 'web-2c91', 'time to cancel', '15 minutes')")
	after(1420, due, take("web-7f3a"))
	after(1480, step("web-7f3a", "pick", `{"parcels": 2}`), fmt.Sprintf(await, "web-7f3a"))
	after(2700, `select posthorn.publish('default', 'label.printed', '{}', stream => 'labels', key => 'order-1007')`,
		"update posthorn.await_places set at = at - interval '1 minute'", "select posthorn.wake_jobs()")
	after(2710, take("web-2c91"), fmt.Sprintf(await, "web-2c91"))
	for i, name := range []string{"pack", "weigh", "hand over", "notify"} {
		after(2800+200*i, step("web-2c91", name, "1"))
	}
	after(3000, "select posthorn.claim('default', 'mail', 'mailer-1', lease_for => '1 hour')")
	posthorntest.SetClock(t, s.ph, time.Now())
	s.exec(t, "select posthorn.heartbeat_job(41, 'web-2c91'), posthorn.claim_jobs('default', 'web-7f3a', '{mail}', 4)")
}
