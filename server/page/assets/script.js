// The page works without this script. With it, live pages renew themselves, times are
// those of the person, and some keys are shortcuts.
"use strict";

document.documentElement.classList.add("scripted");
const main = document.getElementById("main");

// On a phone the navigation is wider than the screen.
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// Times: the server's clock counts, in the zone of the person. The page says what it was
// when the answer began; until this script runs, the rest of the page has to arrive.
const answered = performance.getEntriesByType("navigation")[0]?.responseStart;
const ahead = Date.parse(document.documentElement.dataset.now) - (answered ? performance.timeOrigin + answered : Date.now());
const inFull = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const inTable = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

// A period, as the sentences about jobs have it: posthorn.in_words of the database writes the same.
function inWords(seconds) {
  const part = (n, unit) => (n ? n + unit : "");
  if (seconds >= 172800) return Math.round(seconds / 86400) + " days";
  const minutes = Math.floor((seconds + 30) / 60);
  if (seconds >= 3570) return part(Math.floor(minutes / 60), "h") + part(minutes % 60, "m");
  if (seconds >= 60) return part(Math.floor(seconds / 60), "m") + part(seconds % 60, "s");
  return seconds + "s";
}

function distance(milliseconds) {
  const seconds = Math.round(milliseconds / 1000);
  if (seconds === 0) return "now";
  return seconds < 0 ? inWords(-seconds) + " ago" : "in " + inWords(seconds);
}

function setTimes() {
  for (const element of document.querySelectorAll("time[data-time]")) {
    const at = Date.parse(element.dateTime), away = at - Date.now() - ahead, shown = element.dataset.time;
    const text = shown === "ago" ? distance(away) : shown === "for" ? inWords(Math.max(0, Math.round(-away / 1000))) : inTable.format(at);
    if (element.textContent !== text) element.textContent = text;
    const title = inFull.format(at) + (shown === "ago" ? "" : ", " + distance(away));
    if (element.title !== title) element.title = title;
  }
}

// The time axis of a chart.
const axisForms = {
  clock: new Intl.DateTimeFormat(undefined, { timeStyle: "short" }),
  day: new Intl.DateTimeFormat(undefined, { weekday: "short", hour: "numeric" }),
};
function setAxes() {
  for (const text of document.querySelectorAll("svg text[data-at]")) text.textContent = axisForms[text.dataset.form].format(Date.parse(text.dataset.at));
}

// Rows are known by data-key, forms and tables by their id: by the attribute, since the property id of a form is its field of
// this name, if it has one.
const keyOf = (node) => node.dataset?.key || node.getAttribute?.("id");

// Replaces the parts of an element that differ from a newer one. What the person has
// typed or opened stays.
function renew(old, fresh) {
  if ("editing" in old.dataset) return; // a form that the person fills in
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.localName === "details")) old.removeAttribute(name);
  }
  const keyed = new Map();
  for (const child of old.children) if (keyOf(child)) keyed.set(keyOf(child), child);
  let next = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const key = keyOf(child);
    let match = key ? keyed.get(key) : next;
    if (key) keyed.delete(key);
    if (match && "editing" in (match.dataset ?? {})) {
      next = removeBetween(next, match); // if the form moved instead, the person would have to click into it again
    } else if (match && match !== next) {
      old.insertBefore(match, next);
    }
    if (match && !key && keyOf(match)) match = undefined;
    if (!match) {
      old.insertBefore(child, next);
      if (child.dataset?.key && old.children.length > 1) child.classList.add("fresh");
      continue;
    }
    next = match.nextSibling;
    if (match.nodeType === child.nodeType && match.nodeName === child.nodeName) {
      if (match.nodeType !== Node.ELEMENT_NODE) {
        if (match.data !== child.data) match.data = child.data;
      } else if (!match.isEqualNode(child)) {
        renew(match, child);
      }
    } else {
      old.replaceChild(child, match);
    }
  }
  removeBetween(next, null);
}

// Removes a node and those that follow it, up to another one.
function removeBetween(node, end) {
  while (node && node !== end) {
    const after = node.nextSibling;
    node.remove();
    node = after;
  }
  return node;
}

// A live page follows the server, while somebody can see it.
const trouble = document.getElementById("trouble");
let failure = ""; // why a search has ended; shown while nothing else is wrong
function tell(text) {
  if (!trouble) return;
  text ||= failure;
  trouble.hidden = !text;
  const said = trouble.querySelector("span");
  if (said.textContent !== text) said.textContent = text;
}

let source;
function follow() {
  if (document.hidden) {
    source?.close();
    source = undefined;
    return;
  }
  if (source || searching) return;
  source = new EventSource(location.pathname + location.search);
  source.addEventListener("main", (message) => {
    tell("");
    const fresh = document.createElement("main");
    fresh.innerHTML = message.data; // keeps the white space at the beginning, which the page has too
    for (const { name, value } of main.attributes) fresh.setAttribute(name, value);
    renew(main, fresh);
    convertTypedTimes();
    offerAll();
    setAxes();
    setTimes();
    document.dispatchEvent(new Event("posthorn:renewed"));
  });
  source.addEventListener("trouble", (message) => tell(message.data));
  source.addEventListener("gone", () => location.reload());
  source.addEventListener("error", () => {
    tell("This page is out of date: the server does not answer.");
    if (source.readyState === EventSource.CLOSED) {
      source = undefined;
      setTimeout(follow, 5000);
    }
  });
}

// A search that has found nothing yet goes on, until it finds something, has looked at
// everything, or the person stops it. After an error the person can go on where it has ended.
let searching = false;
async function goOn() {
  const next = () => main?.querySelector("a[data-goes-on]");
  searching = Boolean(next());
  while (searching && next()) {
    main.querySelector("[data-stop]").hidden = false;
    const address = next().href;
    let answer, problem;
    try {
      const response = await fetch(address);
      answer = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("main");
      if (!response.ok) problem = answer?.querySelector(".problem strong")?.textContent ?? `the server answered with status ${response.status}.`;
    } catch {
      problem = "the server does not answer.";
    }
    if (!searching) break;
    if (problem) {
      failure = "The search has ended early: " + problem;
      tell("");
      break;
    }
    history.replaceState(null, "", address);
    const stop = answer.querySelector("[data-stop]");
    if (stop) stop.hidden = false; // the button that the person may be about to press stays the same
    renew(main, answer);
    offerAll();
    setTimes();
  }
  searching = false;
  const stop = main?.querySelector("[data-stop]");
  if (stop) stop.hidden = true;
}

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-stop]")) return;
  searching = false;
  event.target.hidden = true;
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    button.textContent = "Selected";
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  event.preventDefault();
  document.getElementById("find")?.focus();
});

for (const id of ["namespace", "database"]) {
  document.getElementById(id)?.addEventListener("change", (event) => event.target.form.submit());
}

// Times that people type are in their zone; the server reads UTC.
function convertTypedTimes() {
  for (const input of document.querySelectorAll("input[type=datetime-local][data-utc][name]")) {
    const hidden = document.createElement("input");
    hidden.type = "hidden";
    hidden.name = input.name;
    input.removeAttribute("name"); // so each input is converted once
    input.after(hidden);
    if (input.dataset.utc) {
      const at = new Date(input.dataset.utc);
      input.value = new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
    }
    const set = () => { hidden.value = input.value ? new Date(input.value).toISOString() : ""; };
    input.addEventListener("input", set);
    set();
  }
}

// A box in the heading chooses all rows of the page, or none. It is ticked while all are.
const boxesBelow = (head) => [...head.form.querySelectorAll(`tbody input[name="${head.dataset.all}"]`)];
function offerAll() {
  for (const head of document.querySelectorAll("[data-all]")) {
    head.hidden = false;
    head.checked = boxesBelow(head).every((box) => box.checked);
  }
}
document.addEventListener("change", ({ target }) => {
  if (target.dataset.all) for (const box of boxesBelow(target)) box.checked = target.checked;
  else if (target.matches(".choosing tbody input")) offerAll();
});

// On a phone a filter is folded, so that the list is in sight.
const phone = matchMedia("(max-width: 640px)");
function fold() {
  for (const filter of document.querySelectorAll("details.fold")) filter.open = !phone.matches;
}
phone.addEventListener("change", fold);

// The meaning of a cron expression follows what the person types, after a pause.
let asking, asked;
document.addEventListener("input", (event) => {
  if (!event.target.matches("[data-when]")) return;
  clearTimeout(asking);
  asking = setTimeout(askWhen, 300);
});

async function askWhen() {
  asked?.abort();
  asked = new AbortController();
  const query = new URLSearchParams();
  for (const input of document.querySelectorAll("[data-when]")) query.set(input.name, input.value);
  try {
    const answer = await fetch(location.pathname + "?" + query, { signal: asked.signal });
    const when = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("when");
    if (!answer.ok || !when) return;
    renew(document.getElementById("when"), when);
    setTimes();
  } catch {
    // the next key asks again
  }
}

offerAll();
fold();
convertTypedTimes();
setAxes();
setTimes();
setInterval(() => { if (!document.hidden) setTimes(); }, 1000);
const looked = goOn();
if (main && "live" in main.dataset) {
  looked.then(follow);
  document.addEventListener("visibilitychange", follow);
}
