// What a page does besides being read: local times, changes as they happen, a window on long lists, and forms of
// the API. What a run has recorded is folded and escaped by the server; texts of responses are only ever text.
import { copyable, localTimes, reachable, showPictures, windowed } from "./list.js";

/** @typedef {Record<string, any>} Json */

const main = /** @type {HTMLElement} */ (document.getElementById("main"));

/**
 * The HTML of each live part, as the server sent it.
 * @type {Map<string, string>}
 */
const sent = new Map();

/** @param {ParentNode} root @returns {HTMLElement[]} */
const liveParts = (root) => [...root.querySelectorAll("[data-live]")].map((it) => /** @type {HTMLElement} */ (it));

/** @param {HTMLElement} part */
const nameOf = (part) => part.dataset.live ?? "";

/**
 * Whether somebody writes or selects in a part: it must not change now.
 * @param {HTMLElement} part
 */
function isUsed(part) {
  const active = document.activeElement;
  if (active && part.contains(active) && active.matches("input:not([type=checkbox]), select, textarea")) return true;
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(part, true);
}

/**
 * What stays the same in a part that is replaced: what is open, focused, and scrolled to.
 * @param {HTMLElement} old @param {HTMLElement} fresh
 */
function keepState(old, fresh) {
  /** @param {HTMLElement} root */
  const openings = (root) => {
    const seen = new Map();
    return [...root.querySelectorAll("details")].map((it) => {
      const heading = it.querySelector("summary b, summary h3, summary code");
      const title = heading?.textContent?.replace(/[0-9].*/, "") ?? "";
      const count = seen.get(title) ?? 0;
      seen.set(title, count + 1);
      return { it, key: `${title} ${count}` };
    });
  };
  const open = new Map(openings(old).map(({ it, key }) => [key, it.open]));
  for (const { it, key } of openings(fresh)) it.open = open.get(key) ?? it.open;
  const scrolled = ".canvas, .timeline, pre";
  const places = [...old.querySelectorAll(scrolled)].map((it) => [it.scrollLeft, it.scrollTop]);
  const picked = new Set(pickedRuns(old).map((it) => it.value));
  for (const it of picks(fresh)) it.checked = picked.has(it.value);
  const active = old.contains(document.activeElement) ? document.activeElement : null;
  old.replaceWith(fresh);
  [...fresh.querySelectorAll(scrolled)].forEach((it, at) => {
    if (places[at]) [it.scrollLeft, it.scrollTop] = places[at];
  });
  for (const name of ["id", "href", "value"]) {
    const value = active?.getAttribute(name);
    if (!value) continue;
    const same = fresh.querySelector(`[${name}="${CSS.escape(value)}"]`);
    if (same instanceof HTMLElement || same instanceof SVGElement) same.focus({ preventScroll: true });
    break;
  }
}

/** The shortest time between two looks at the page, in milliseconds. */
const PAUSE = 100;
const pace = Math.max(PAUSE, Number(main.dataset.pace ?? 0));
let timer = 0;
let isFetching = false;
let mustLookAgain = false;
let cost = 0;
let lastLook = 0;

/** Looks whether the page has changed: at once, but a page that is slow to make is asked for less often. */
function refreshSoon() {
  if (isFetching) mustLookAgain = true;
  if (timer || isFetching || isAway()) return;
  const wait = lastLook + Math.max(pace, 3 * cost) - performance.now();
  timer = window.setTimeout(refresh, Math.max(0, wait));
}

async function refresh() {
  clearTimeout(timer);
  timer = 0;
  if (isFetching) return;
  isFetching = true;
  mustLookAgain = false;
  const began = performance.now();
  const text = await currentPage();
  if (text !== null) show(text);
  isFetching = false;
  lastLook = performance.now();
  cost = lastLook - began;
  if (mustLookAgain) refreshSoon();
}

/**
 * Puts the parts that have changed into the page.
 * @param {string} text
 */
function show(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  document.title = fresh.title || document.title;
  report(fresh);
  // What a stage has written is on its page once it has ended.
  if (!fresh.getElementById("output")) document.getElementById("output")?.remove();
  const parts = new Map(liveParts(fresh).map((it) => [nameOf(it), it]));
  let isLeftOut = false;
  for (const old of liveParts(document)) {
    const name = nameOf(old);
    const part = parts.get(name);
    if (!part || sent.get(name) === part.outerHTML) continue;
    if (isUsed(old)) {
      isLeftOut = true;
      continue;
    }
    sent.set(name, part.outerHTML);
    const element = document.importNode(part, true);
    if (name === "gates") sayAnswered(old, element);
    localTimes(element);
    keepState(old, element);
    reachable(element);
  }
  const place = fresh.getElementById("main");
  if (place && parts.size > 0) follow(place.dataset.stream, place.dataset.after);
  const rows = fresh.querySelector("[data-rows]");
  if (rows instanceof HTMLElement) updateRows(Number(rows.dataset.total));
  if (isLeftOut) setTimeout(refreshSoon, 1000);
  retryLater();
}

/** What the store could not give because it was busy is asked for again. */
function retryLater() {
  if (document.querySelector("[data-retry]")) setTimeout(refreshSoon, 2000);
}

/** The answer of this page was not taken: there was another one before. */
let isTooLate = false;

/**
 * Says which gates wait no more.
 * @param {HTMLElement} old
 * @param {HTMLElement} fresh
 */
function sayAnswered(old, fresh) {
  /** @param {HTMLElement} root */
  const open = (root) => {
    const gates = [...root.querySelectorAll(".gate:has(.act)")];
    return new Map(gates.map((gate) => {
      const name = gate.getAttribute("data-gate") ?? "";
      return [`${gate.querySelector(".act")?.getAttribute("data-post")} ${name}`, name];
    }));
  };
  const left = open(fresh);
  const gone = [...open(old)].filter(([key]) => !left.has(key)).map(([, name]) => name);
  const news = document.getElementById("news");
  if (gone.length === 0 || !news) return;
  // Whose own answer came too late hears that.
  if (isTooLate) isTooLate = false;
  else news.textContent = `${gone.join(", ")}: answered.`;
  news.hidden = false;
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
let lastSeen = "";

/**
 * Follows a stream of changes, or none.
 * @param {string | undefined} address
 * @param {string | undefined} after
 */
function follow(address = "", after = "") {
  lastSeen = after;
  if (address === followed) return;
  followed = address;
  connect();
}

function connect() {
  source?.close();
  source = null;
  if (!followed || isAway()) return;
  source = new EventSource(lastSeen ? `${followed}?after=${lastSeen}` : followed);
  source.onmessage = refreshSoon;
  source.addEventListener("changed", refreshSoon);
}

// A browser has few connections to a server: a page that is not seen, and has nothing to report, gives its own back.
const isAway = () => document.hidden && !isNotifying();
document.addEventListener("visibilitychange", () => {
  if (isAway() || !source) connect();
  if (!document.hidden && followed) refreshSoon();
});

/** Whether the reader wants notifications of the browser, and allows them. */
function isNotifying() {
  return "Notification" in window && Notification.permission === "granted" && localStorage.getItem("notify") === "on";
}

/**
 * The gates and runs that a page shows, by their addresses: a title, a text, and whether it is a run that is running.
 * @param {Document} page
 */
function shownStates(page) {
  /** @type {Map<string, { title: string, text: string, isRunning: boolean, isGate: boolean }>} */
  const states = new Map();
  /** @param {Element | null | undefined} it */
  const text = (it) => it?.textContent?.trim() ?? "";
  const here = location.pathname.split("/").slice(0, 3).join("/");
  for (const row of page.querySelectorAll(".runs tbody tr")) {
    const link = row.querySelector("td a");
    const status = row.querySelector(".sign [role=img]")?.getAttribute("aria-label") ?? "";
    states.set(link?.getAttribute("href") ?? "", { title: text(link), text: status, isRunning: status === "running", isGate: false });
  }
  const status = page.querySelector(".title .status");
  if (status) {
    const title = text(page.querySelector(".title h1, .title .up"));
    const word = text(status).replace(/^\S\s+/, "");
    states.set(here, { title, text: word, isRunning: status.classList.contains("live"), isGate: false });
  }
  for (const gate of page.querySelectorAll(".gate:not(:has(.taken))")) {
    const run = gate.querySelector("a[href^='/runs/']")?.getAttribute("href") ?? here;
    const title = text(gate.querySelector("a b") ?? page.querySelector(".title h1"));
    states.set(`${run}#${gate.getAttribute("data-gate")}`, { title, text: text(gate.querySelector(".question")), isRunning: false, isGate: true });
  }
  return states;
}

let known = shownStates(document);

/**
 * Notifies of gates that have opened and of runs that run no more, while the page is not looked at.
 * @param {Document} fresh
 */
function report(fresh) {
  const before = known;
  known = shownStates(fresh);
  if (!isNotifying() || document.hasFocus()) return;
  for (const [address, now] of known) {
    const hasEnded = before.get(address)?.isRunning && !now.isRunning;
    const isAsked = [...known].some(([gate, it]) => it.isGate && gate.startsWith(`${address}#`));
    if (now.isGate ? before.has(address) : !hasEnded || isAsked) continue;
    const note = new Notification(now.title, { body: now.text, tag: address });
    note.onclick = () => {
      window.focus();
      location.assign(address.split("#")[0] ?? "/");
    };
  }
}

const notifyButton = /** @type {HTMLButtonElement} */ (document.getElementById("notify"));
function showNotifying() {
  notifyButton.hidden = !("Notification" in window) || !main.dataset.stream;
  notifyButton.setAttribute("aria-pressed", String(isNotifying()));
}
notifyButton.addEventListener("click", async () => {
  const isOn = isNotifying();
  localStorage.setItem("notify", isOn ? "off" : "on");
  if (!isOn && Notification.permission !== "granted") await Notification.requestPermission();
  showNotifying();
});

/** @param {ParentNode} root @returns {HTMLInputElement[]} */
const picks = (root) => /** @type {HTMLInputElement[]} */ ([...root.querySelectorAll("input.pick:not([data-all])")]);
/** @param {ParentNode} root */
const pickedRuns = (root) => picks(root).filter((it) => it.checked);

/** Shows what can be done with the runs that are picked. */
function showPicked() {
  const form = document.getElementById("bulk");
  const count = pickedRuns(document).length;
  if (!form) return;
  // What was done is said until other runs are picked.
  form.hidden = count === 0 && !form.querySelector(".said");
  for (const button of form.querySelectorAll("button")) button.hidden = count === 0;
  const place = form.querySelector("[data-count]");
  if (place) place.textContent = count === 0 ? "" : count === 1 ? "1 run" : `${count} runs`;
}

document.addEventListener("change", (event) => {
  const box = event.target;
  if (!(box instanceof HTMLInputElement) || !box.classList.contains("pick")) return;
  if (box.dataset.all !== undefined) for (const it of picks(document)) it.checked = box.checked;
  document.querySelector("#bulk .said")?.remove();
  showPicked();
});

/**
 * Does the same with all runs that are picked, one after the other.
 * @param {HTMLFormElement} form
 * @param {string} what
 */
async function doWithPicked(form, what) {
  const runs = pickedRuns(document).map((it) => it.value);
  const count = runs.length === 1 ? "1 run" : `${runs.length} runs`;
  const question = what === "cancel" ? `Cancel ${count}? They cannot be resumed.` : `Remove ${count} with all they have recorded? They cannot be restored.`;
  if (!confirm(question)) return;
  let done = 0;
  const problems = [];
  for (const run of runs) {
    const address = `/api/v1/runs/${encodeURIComponent(run)}`;
    const [isDone, answer] = what === "cancel" ? await post(`${address}/cancel`, {}) : await send("DELETE", address);
    if (isDone) done += 1;
    else problems.push(`${run.slice(0, 13)}: ${answer.detail}`);
  }
  for (const it of picks(document)) it.checked = false;
  const said = `${done} ${what === "cancel" ? "canceled" : "removed"}.`;
  say(form, problems.length === 0 ? said : `${said} Not ${problems.length}: ${problems.join("; ")}`, problems.length > 0);
  await refresh();
  showPicked();
}

/** @type {{ reset: (blocks: number) => void, show: (block: number) => Promise<HTMLElement>, resize: (blocks: number) => void, reload: (isWanted: (block: HTMLElement) => boolean) => void } | undefined} */
let rowView;
/** @type {HTMLElement | null} */
const rowList = document.querySelector("[data-rows]");
/** How many rows one request brings. */
const CHUNK = 100;
/**
 * The HTML of rows, by the number of the request.
 * @type {Map<number, Promise<string[]>>}
 */
const chunks = new Map();

/** @param {HTMLElement} list */
function windowRows(list) {
  const size = Number(list.dataset.block);
  const count = Math.ceil(Number(list.dataset.total) / size);
  const first = Number(list.dataset.from) / size;
  const given = list.childElementCount;
  const blocks = (/** @type {number} */ count) =>
    Array.from({ length: count }, () => Object.assign(document.createElement("div"), { className: "block" }));
  list.prepend(...blocks(first));
  list.append(...blocks(count - first - given));
  rowView = windowed(list, async (number) => {
    const chunk = Math.floor((number * size) / CHUNK);
    const rows = await rowsOf(list, chunk);
    const at = number * size - chunk * CHUNK;
    return rows.slice(at, at + size).join("");
  });
  if (first > 0) list.children[first]?.scrollIntoView({ block: "start" });
}

/** @param {HTMLElement} list @param {number} chunk */
function rowsOf(list, chunk) {
  const known = chunks.get(chunk);
  if (known) return known;
  const address = new URL(list.dataset.rows ?? "", location.href);
  address.searchParams.set("from", String(chunk * CHUNK));
  address.searchParams.set("count", String(CHUNK));
  const rows = fetch(address).then(async (response) => {
    if (!response.ok) return [];
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    return [...fresh.body.querySelectorAll(":scope > a.stage")].map((row) => row.outerHTML);
  });
  rows.catch(() => chunks.delete(chunk));
  chunks.set(chunk, rows);
  if (chunks.size > 8) {
    const oldest = chunks.keys().next().value;
    if (oldest !== undefined) chunks.delete(oldest);
  }
  return rows;
}

/**
 * Shows rows that are new, and those that were not ended.
 * @param {number} total
 */
function updateRows(total) {
  // The places of sorted rows change: they stay as they are until somebody looks again.
  if (!rowList || !rowView || rowList.dataset.sorted !== undefined) return;
  const size = Number(rowList.dataset.block);
  rowList.dataset.total = String(total);
  rowList.classList.toggle("none", total === 0);
  chunks.clear();
  rowView.resize(Math.ceil(total / size));
  rowView.reload((block) => block.childElementCount < size || block.querySelector(".live, .held") !== null);
}

/**
 * A value of a form as commands take it: JSON where it reads as that, else a text.
 * @param {string} text
 */
function jsonOrText(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "number" && String(value) !== text ? text : value;
  } catch {
    return text;
  }
}

/**
 * The fields of a form as the API takes them. A field `inputs.KEY` is a key of an object.
 * @param {HTMLFormElement} form
 * @param {HTMLButtonElement | null} button
 */
function fields(form, button) {
  /** @type {Json} */
  const body = {};
  const pairs = [...new FormData(form)];
  if (button?.name) pairs.push([button.name, button.value]);
  for (const [name, text] of pairs) {
    const field = form.elements.namedItem(name);
    const of = field instanceof HTMLElement ? field.dataset : {};
    if (typeof text !== "string" || text === "" && of.empty === undefined || of.skip !== undefined) continue;
    if (name === "set") continue;
    const isNumber = field instanceof HTMLInputElement && field.type === "number";
    const isFlag = field instanceof HTMLInputElement && field.type === "checkbox";
    const value = isNumber ? Number(text) : isFlag ? true : of.json === undefined ? text : jsonOrText(text);
    const [object, key] = name.split(/\.(.*)/s);
    if (key === undefined) body[name] = value;
    else (body[object] ??= {})[key] = value;
  }
  for (const row of form.querySelectorAll("[data-set]")) {
    const [key, value] = [...row.querySelectorAll("input, textarea")].map((it) => /** @type {HTMLInputElement} */ (it).value);
    if (key?.trim()) (body.set ??= {})[key.trim()] = jsonOrText(value ?? "");
  }
  return body;
}

/**
 * Says something below a form, as text.
 * @param {HTMLFormElement} form
 * @param {string} text
 * @param {boolean} isBad
 */
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

/** @param {string} address @param {Json} body @param {Record<string, string>} more @returns {Promise<[boolean, Json]>} */
const post = (address, body, more = {}) => send("POST", address, body, more);

/** @param {string} method @param {string} address @param {Json} [body] @param {Record<string, string>} [more] @returns {Promise<[boolean, Json]>} */
async function send(method, address, body, more = {}) {
  const headers = { ...(body && { "Content-Type": "application/json" }), ...more };
  const response = await fetch(address, { method, headers, ...(body && { body: JSON.stringify(body) }) });
  return [response.ok, await response.json()];
}

/** @param {HTMLFormElement} form @param {HTMLButtonElement | null} button */
async function submit(form, button) {
  const address = button?.dataset.post ?? form.dataset.post ?? "";
  /** @type {Record<string, string>} */
  const headers = {};
  if (form.dataset.key) headers["Idempotency-Key"] = `${form.dataset.key}-${button?.value ?? ""}`;
  if (button?.dataset.match) headers["If-Match"] = button.dataset.match;
  const [isDone, answer] = await post(address, fields(form, button), headers);
  if (!isDone) {
    say(form, `${answer.detail}: ${answer.fix}`, true);
    const news = document.getElementById("news");
    if (answer.code === "gate_answered" && news) {
      // The form goes away with what it says.
      news.textContent = `Your answer was not taken: ${answer.detail}.`;
      news.hidden = false;
      isTooLate = form.isConnected;
    }
    return;
  }
  if (form.dataset.go !== undefined) {
    const page = `/runs/${encodeURIComponent(answer.id)}`;
    const resume = form.elements.namedItem("resume");
    if (resume instanceof HTMLInputElement && resume.checked) {
      const [isResumed, problem] = await post(`/api/v1${page}/resume`, {});
      if (!isResumed) {
        say(form, `Made, but not resumed. ${problem.detail}: ${problem.fix}`, true);
        return;
      }
    }
    location.assign(page);
    return;
  }
  form.reset();
  const waits = answer.driven === false;
  say(form, waits ? "Done. The run continues when it is resumed." : "Done.", false);
  if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
  await refresh();
  const news = document.getElementById("news");
  if (form.isConnected || !news || news.hidden || document.activeElement !== document.body) return;
  // The form is gone, and the place of the keyboard with it: it continues at what says so.
  news.tabIndex = -1;
  news.focus({ preventScroll: true });
}

document.addEventListener("submit", async (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  const isBulk = form.dataset.bulk !== undefined;
  if (!form.dataset.post && !isBulk) return;
  event.preventDefault();
  if (form.dataset.confirm && !confirm(form.dataset.confirm)) return;
  const button = event.submitter instanceof HTMLButtonElement ? event.submitter : null;
  if (form.dataset.busy !== undefined) return;
  form.dataset.busy = "";
  try {
    if (isBulk) await doWithPicked(form, button?.value ?? "");
    else await submit(form, button);
  } catch {
    say(form, "The server does not answer: try again when it runs.", true);
  } finally {
    delete form.dataset.busy;
  }
});

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("button[data-add]") : null;
  const row = button?.parentElement?.querySelector("[data-set]:last-of-type");
  if (!row) return;
  const copy = /** @type {HTMLElement} */ (row.cloneNode(true));
  for (const field of copy.querySelectorAll("input, textarea")) /** @type {HTMLInputElement} */ (field).value = "";
  row.after(copy);
  copy.querySelector("input")?.focus();
});

/** How long a page waits before it asks for the output again, in milliseconds. */
const LOGS_RETRY = 2000;

/** @type {AbortController | null} */
let logReader = null;

/**
 * Follows the output of stages while the page is seen, and connects again when the connection is lost.
 * @param {HTMLElement} place
 */
async function followLogs(place) {
  if (logReader || document.hidden || place.dataset.ended !== undefined) return;
  const reader = new AbortController();
  logReader = reader;
  try {
    await readLogs(place, reader.signal);
  } catch {
    // The server is away, or the page is not seen.
  }
  if (logReader !== reader) return;
  logReader = null;
  // A server that refused, because it has too many readers, is asked again too.
  if (place.dataset.ended === undefined) setTimeout(() => void followLogs(place), LOGS_RETRY);
}

/**
 * The output of stages as it is written, the last lines of it.
 * @param {HTMLElement} place
 * @param {AbortSignal} signal
 */
async function readLogs(place, signal) {
  const most = Number(place.dataset.lines);
  const decoder = new TextDecoder();
  let rest = "";
  const response = await fetch(place.dataset.logs ?? "", { signal });
  if (!response.ok || !response.body) return;
  // The answer begins with the last lines.
  place.replaceChildren();
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    const isAtEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 40;
    for (const line of lines.slice(-most)) addLogLine(place, line);
    while (place.childElementCount > most) place.firstElementChild?.remove();
    // Who has scrolled up reads: nothing moves then.
    if (isAtEnd) place.scrollTop = place.scrollHeight;
  }
  place.dataset.ended = "";
}

/** @param {HTMLElement} place @param {string} line */
function addLogLine(place, line) {
  const { stage, stream, line: number, text } = JSON.parse(line);
  const run = place.dataset.run ?? "";
  const row = document.createElement("div");
  row.className = `line ${stream}`;
  const at = document.createElement("a");
  at.className = "at";
  at.textContent = number;
  at.setAttribute("aria-label", `Link to line ${number}`);
  at.tabIndex = -1;
  const address = new URLSearchParams({ at: stage, stream, line: number });
  if (place.dataset.stage) address.set("stage", place.dataset.stage);
  at.href = `${run}/logs?${address}#line`;
  row.append(at);
  if (!place.classList.contains("single")) row.append(stageLink(place, row, run, stage));
  const written = document.createElement("span");
  // Characters that control a terminal, or change the direction of text, are not for a page.
  written.textContent = text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
  row.append(written);
  place.append(row);
}

/** @param {HTMLElement} place @param {HTMLElement} row @param {string} run @param {string} stage */
function stageLink(place, row, run, stage) {
  const name = document.createElement("a");
  name.className = "of";
  // The end of a long name is shown: it tells branches apart.
  name.append(Object.assign(document.createElement("bdi"), { textContent: stage }));
  name.title = stage;
  // The keyboard comes to one link of those that follow each other.
  const above = /** @type {HTMLElement | null | undefined} */ (place.lastElementChild?.querySelector(".of"));
  if (above?.title === stage) {
    name.tabIndex = -1;
    row.classList.add("again");
  }
  name.href = `${run}/stages/${encodeURI(stage).replaceAll("#", "%23").replaceAll("?", "%3F")}`;
  return name;
}

/** @param {number} milliseconds */
function asTime(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3600)];
  if (hours > 0) return `${hours}h ${String(minutes % 60).padStart(2, "0")}m`;
  return minutes > 0 ? `${minutes}m ${String(seconds % 60).padStart(2, "0")}s` : `${seconds}s`;
}

/** Counts how long something takes that has not ended, and how long it may take. */
function tick() {
  for (const it of document.querySelectorAll("[data-since]")) {
    it.textContent = asTime(Date.now() - Number(it.getAttribute("data-since")));
  }
  for (const it of document.querySelectorAll("[data-until]")) {
    const left = Number(it.getAttribute("data-until")) - Date.now();
    it.textContent = asTime(left);
    if (left > 0) continue;
    // No event says that a stage waits no more.
    it.removeAttribute("data-until");
    setTimeout(refreshSoon, 1000);
  }
}

/** @param {number} step */
async function toRow(step) {
  const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("a.stage, .runs tbody a, .events summary, .logs .at, .message .who a, .gate button:enabled")]);
  const now = rows.findIndex((row) => row === document.activeElement);
  let next = rows[now < 0 ? 0 : now + step];
  const block = blockOf(rows[now], next, step);
  if (rowView && block !== undefined) {
    const shown = await rowView.show(block);
    next = /** @type {HTMLElement} */ (step > 0 ? shown.firstElementChild : shown.lastElementChild);
  }
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/**
 * The block of the long list that has the next row and may not be in the page; undefined where the row is.
 * @param {HTMLElement | undefined} from
 * @param {HTMLElement | undefined} next
 * @param {number} step
 */
function blockOf(from, next, step) {
  if (!rowList || Number(rowList.dataset.total) === 0) return undefined;
  const own = from && rowList.contains(from) ? from.parentElement : null;
  if (!own) return step > 0 && (!next || rowList.contains(next)) ? 0 : undefined;
  if (step > 0 ? from?.nextElementSibling : from?.previousElementSibling) return undefined;
  const block = Number(own.dataset.number) + step;
  return block >= 0 && block < rowList.childElementCount ? block : undefined;
}

/** Steps from row to row follow each other, also where rows have to be loaded. */
let steps = Promise.resolve();

document.addEventListener("keydown", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  if (event.key === "Escape" && target?.matches("input[type=search]")) /** @type {HTMLElement} */ (target).blur();
  if (target?.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j" || event.key === "k") {
    const step = event.key === "j" ? 1 : -1;
    // Rows that the server does not give are not gone to.
    steps = steps.then(() => toRow(step)).catch(() => {});
    return;
  }
  if (event.key === "?") {
    const keys = document.getElementById("keys");
    if (keys instanceof HTMLDialogElement && !keys.open) keys.showModal();
    return;
  }
  /** @type {Record<string, string>} */
  const places = { "/": "input[type=search]", "[": "a[rel=prev]", "]": "a[rel=next]", r: ".top nav a", i: ".top nav a:nth-child(2)" };
  const found = /^[1-9]$/.test(event.key) ? `.tabs a:nth-child(${event.key})` : places[event.key];
  const element = found && document.querySelector(found);
  if (!(element instanceof HTMLElement)) return;
  event.preventDefault();
  if (event.key === "/") element.focus();
  else element.click();
});

document.documentElement.classList.add("scripted");
for (const part of liveParts(document)) sent.set(nameOf(part), part.outerHTML);
localTimes(document);
if (rowList) {
  windowRows(rowList);
  rowList.addEventListener("filled", (event) => localTimes(/** @type {CustomEvent} */ (event).detail));
}
reachable(document);
copyable();
showPictures(document);
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
document.addEventListener("toggle", (event) => reachable(/** @type {Element} */ (event.target)), true);
follow(main.dataset.stream, main.dataset.after);
retryLater();
showNotifying();
showPicked();
tick();
setInterval(tick, 1000);
const logs = document.querySelector("[data-logs]");
if (logs instanceof HTMLElement) {
  void followLogs(logs);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      logReader?.abort();
      logReader = null;
    } else {
      void followLogs(logs);
    }
  });
}
