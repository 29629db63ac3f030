"use strict";
// What a page does besides being read: local times, changes as they happen, and forms of the API. What a run
// has recorded is folded and escaped by the server; texts of responses are only ever text.

/** Times in the zone of the reader. @param {ParentNode} root */
function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([title])")) {
    const written = time.getAttribute("datetime") ?? "";
    const date = new Date(written);
    if (Number.isNaN(date.getTime())) continue;
    time.setAttribute("title", written);
    time.textContent = date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  }
}

/** The HTML of each live part, as the server sent it. @type {Map<string, string>} */
const sent = new Map();

/** @param {ParentNode} root @returns {HTMLElement[]} */
const liveParts = (root) => [...root.querySelectorAll("[data-live]")];

/** Whether somebody writes or selects in a part: it must not change now. @param {HTMLElement} part */
function isUsed(part) {
  const active = document.activeElement;
  if (active && part.contains(active) && active.matches("input:not([type=checkbox]), select, textarea")) return true;
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(part, true);
}

/** What stays the same in a part that is replaced: what is open, checked, focused, and scrolled to. */
function keepState(old, fresh) {
  const openings = (root) => {
    const seen = new Map();
    return [...root.querySelectorAll("details")].map((it) => {
      const title = it.querySelector("summary b, summary h3, summary code")?.textContent.replace(/[0-9].*/, "") ?? "";
      const count = seen.get(title) ?? 0;
      seen.set(title, count + 1);
      return { it, key: `${title} ${count}` };
    });
  };
  const open = new Map(openings(old).map(({ it, key }) => [key, it.open]));
  for (const { it, key } of openings(fresh)) it.open = open.get(key) ?? it.open;
  for (const box of old.querySelectorAll("input[type=checkbox][id]")) {
    const same = fresh.querySelector(`#${CSS.escape(box.id)}`);
    if (same) same.checked = box.checked;
  }
  const places = [...old.querySelectorAll(".canvas, .timeline, pre")].map((it) => [it.scrollLeft, it.scrollTop]);
  const active = old.contains(document.activeElement) ? document.activeElement : null;
  old.replaceWith(fresh);
  [...fresh.querySelectorAll(".canvas, .timeline, pre")].forEach((it, at) => {
    if (places[at]) [it.scrollLeft, it.scrollTop] = places[at];
  });
  for (const name of ["id", "href", "value"]) {
    const value = active?.getAttribute(name);
    if (!value) continue;
    fresh.querySelector(`[${name}="${CSS.escape(value)}"]`)?.focus({ preventScroll: true });
    break;
  }
}

const PAUSE = 300;
let timer = 0;
let isFetching = false;
let cost = 0;

/** Looks soon whether the page has changed; a page that is slow to make is asked for less often. */
function refreshSoon() {
  if (timer || isFetching) return;
  timer = setTimeout(refresh, Math.max(PAUSE, 4 * cost));
}

async function refresh() {
  clearTimeout(timer);
  timer = 0;
  if (isFetching) return;
  isFetching = true;
  const began = performance.now();
  const text = await currentPage();
  isFetching = false;
  cost = performance.now() - began;
  if (text === null) return;
  const fresh = new DOMParser().parseFromString(text, "text/html");
  const parts = new Map(liveParts(fresh).map((it) => [it.dataset.live, it]));
  let mustRepeat = false;
  for (const old of liveParts(document)) {
    const name = old.dataset.live;
    const part = parts.get(name);
    if (!part || sent.get(name) === part.outerHTML) continue;
    if (isUsed(old)) {
      mustRepeat = true;
      continue;
    }
    sent.set(name, part.outerHTML);
    const element = document.importNode(part, true);
    localTimes(element);
    keepState(old, element);
  }
  const main = fresh.getElementById("main");
  if (main && parts.size > 0) follow(main.dataset.stream, main.dataset.after);
  if (mustRepeat) setTimeout(refreshSoon, 1000);
}

/** This page as it is now; null when the server is away or refuses: its stream connects again later. */
async function currentPage() {
  try {
    const response = await fetch(location.pathname + location.search);
    return response.ok ? await response.text() : null;
  } catch {
    return null;
  }
}

/** @type {EventSource | null} */
let source = null;
let followed = "";

/** Follows a stream of changes, or none. @param {string | undefined} address @param {string | undefined} after */
function follow(address = "", after = "") {
  if (address === followed) return;
  followed = address;
  source?.close();
  source = null;
  if (!address) return;
  source = new EventSource(after ? `${address}?after=${after}` : address);
  source.onmessage = refreshSoon;
  source.addEventListener("changed", refreshSoon);
}

/** The fields of a form as the API takes them. */
function fields(form, button) {
  const body = {};
  for (const [name, value] of new FormData(form, button)) {
    if (value === "") continue;
    const isNumber = form.elements.namedItem(name)?.type === "number";
    body[name] = isNumber ? Number(value) : value;
  }
  return body;
}

/** Says something below a form, as text. */
function say(form, text, isBad) {
  let place = form.querySelector(".said");
  if (!place) {
    place = document.createElement("p");
    place.setAttribute("role", "status");
    form.append(place);
  }
  place.className = `said ${isBad ? "bad" : "good"}`;
  place.textContent = text;
}

document.addEventListener("submit", async (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  const address = form.dataset.post;
  if (!address) return;
  event.preventDefault();
  if (form.dataset.confirm && !confirm(form.dataset.confirm)) return;
  const body = JSON.stringify(fields(form, event.submitter));
  try {
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(address, { method: "POST", headers, body });
    const answer = await response.json();
    if (!response.ok) {
      say(form, `${answer.detail}: ${answer.fix}`, true);
      return;
    }
    form.reset();
    const waits = answer.driven === false;
    say(form, waits ? "Done. The run continues when it is resumed." : "Done.", false);
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
  } catch {
    say(form, "The server does not answer: try again when it runs.", true);
    return;
  }
  await refresh();
});

document.addEventListener("keydown", (event) => {
  const isWriting = event.target instanceof Element && event.target.matches("input, select, textarea");
  if (isWriting || event.ctrlKey || event.metaKey || event.altKey) return;
  const found = { "/": "input[type=search]", "[": "a[rel=prev]", "]": "a[rel=next]" }[event.key];
  const element = found && document.querySelector(found);
  if (!element) return;
  event.preventDefault();
  if (event.key === "/") element.focus();
  else element.click();
});

document.documentElement.classList.add("scripted");
for (const part of liveParts(document)) sent.set(part.dataset.live, part.outerHTML);
localTimes(document);
const main = document.getElementById("main");
follow(main?.dataset.stream, main?.dataset.after);
