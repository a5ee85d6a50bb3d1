// What a person does with a page. Each function returns "", or a sentence about the
// reason why it was not possible.
const words = (text) => text.replace(/\s+/g, " ").trim();
const visible = (e) => e.checkVisibility({ visibilityProperty: true }) && e.getClientRects().length > 0;
const all = (selector, within = document) => [...within.querySelectorAll(selector)].filter(visible);

function rows(text) {
  return all("tr, li, section, dl.facts").filter((e) => words(e.innerText).includes(text));
}

// reach scrolls to an element, and says what covers it.
function reach(e) {
  e.scrollIntoView({ block: "center", inline: "center" });
  const box = e.getClientRects()[0];
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return e.contains(top) ? "" : `covered by ${top ? top.outerHTML.slice(0, 200) : "the edge of the screen"}`;
}

// unfoldFor opens the folded filter, if a part of it that matches is asked for.
function unfoldFor(selector, matches) {
  for (const folded of all("details.fold:not([open])")) {
    if ([...folded.querySelectorAll(selector)].some(matches)) folded.querySelector("summary").click();
  }
}

function click(name, row, within) {
  if (!row) unfoldFor("a, button", (e) => words(e.textContent) === name);
  const places = row ? rows(row) : all(within);
  const found = [...new Set(places.flatMap((p) => all("a, button", p)))].filter((e) => words(e.innerText) === name);
  if (found.length !== 1) return `${found.length} links and buttons have this text`;
  const covered = reach(found[0]);
  if (covered) return covered;
  document.body.dataset.left = "yes";
  found[0].click();
  return "";
}

function unfold(name) {
  const found = all("summary").filter((e) => words(e.innerText) === name);
  if (found.length !== 1) return `${found.length} have this text`;
  found[0].click();
  return "";
}

// field finds the field with a label, for which a person unfolds the filter.
function field(label) {
  unfoldFor("label", (l) => words(l.textContent) === label);
  const found = all("input, select, textarea").filter((e) => [...(e.labels || [])].some((l) => words(l.textContent) === label) || e.ariaLabel === label);
  return found.length === 1 ? found[0] : undefined;
}

function focus(label) {
  const e = field(label);
  if (!e) return "there is no such field, or several";
  const covered = reach(e);
  e.focus();
  e.select();
  return covered;
}

function choose(label, value) {
  const e = field(label);
  if (!e) return "there is no such field, or several";
  if (e.localName === "select") {
    const option = [...e.options].find((o) => o.text === value);
    if (!option) return "there is no such option";
    e.value = option.value;
  } else if (e.type === "checkbox" || e.type === "radio") {
    if (e.checked !== (value === "yes")) e.click();
  } else {
    e.value = value;
  }
  e.dispatchEvent(new Event("input", { bubbles: true }));
  e.dispatchEvent(new Event("change", { bubbles: true }));
  return "";
}

const focused = (label) => (document.activeElement === field(label) ? "" : "it is not in the field");
const value = (label) => field(label)?.value ?? `there is no field ${label}`;

function shows(text) {
  return words(document.body?.innerText ?? "").includes(text) ? "" : "it is not shown";
}

function showsIn(row, texts) {
  return rows(row).some((e) => texts.every((t) => words(e.innerText).includes(t))) ? "" : "it is not shown";
}

// buttons says which buttons make an action, or lead to one.
function buttons() {
  return all("main form[method=post], main [data-action]").map((e) => words(e.innerText)).join(", ");
}

// mark marks the document, and marked says whether it is still the same: not reloaded.
function mark() {
  window.marked = true;
  return "";
}
const marked = () => (window.marked ? "" : "the page was loaded again");

// renewed says whether the server has sent the page again.
const renewed = () => (window.renewed ? "" : "not renewed");

function arrived() {
  return document.body && !document.body.dataset.left && document.readyState === "complete" ? "" : "under way";
}

// inSight says whether a text, which is in the page once or more, is on the screen without
// scrolling sideways.
function inSight(text) {
  const shown = all("main *").filter((e) => words(e.innerText ?? "").includes(text));
  const inner = shown.filter((e) => !shown.some((other) => other !== e && e.contains(other)));
  if (!inner.length) return "it is not shown";
  const most = document.documentElement.clientWidth;
  const away = inner.find((e) => [...e.getClientRects()].some((r) => r.left < 0 || r.right > most + 1));
  return away ? `one has to scroll sideways: ${away.outerHTML.slice(0, 300)}` : "";
}

// layout says what is wider than the screen, and what has no name.
function layout() {
  const most = document.documentElement.clientWidth;
  const wide = all("body *").filter((e) => e.getBoundingClientRect().right > most + 1 && !e.closest(".scroll, header nav, pre, .unseen, .skip"));
  if (wide.length) return `wider than the screen: ${wide[0].outerHTML.slice(0, 300)}`;
  const nameless = all("input, select, textarea, button, a").filter((e) =>
    !words([...(e.labels || [])].map((l) => l.textContent).join(" ") + (e.ariaLabel || "") + (e.matches("a, button") ? e.textContent : "")));
  return nameless.length ? `without a name: ${nameless[0].outerHTML.slice(0, 300)}` : "";
}

// boxes says which list is wider than a phone, so that a person scrolls sideways, and which filter covers its list.
function boxes() {
  if (innerWidth > 640) return all(".fold:not([open]), .fold > summary").length ? "a filter is folded on a desk" : "";
  const wide = all("main .scroll:has(> table)").find((e) => e.scrollWidth > e.clientWidth + 1);
  if (wide) return `one has to scroll ${wide.ariaLabel} sideways: ${wide.innerText.slice(0, 300)}`;
  return all(".fold[open]").length ? "the filter is not folded" : "";
}

// readsWell says which text is written as programs write it: a line end as \n, outside of JSON, or the heading of numbers
// in the face of the numbers.
function readsWell() {
  const written = all("main *").find((e) => !e.children.length && e.textContent.includes("\\n"));
  if (written) return `a line end is written out: ${written.outerHTML.slice(0, 300)}`;
  const face = (e) => { const s = getComputedStyle(e); return `${s.fontFamily} ${s.fontSize}`; };
  for (const row of document.querySelectorAll("thead tr")) {
    const faces = new Set([...row.querySelectorAll("th")].map(face));
    if (faces.size > 1) return `a table has headings in ${[...faces].join(" and ")}`;
  }
  return "";
}
