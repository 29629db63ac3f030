// The script of a report: it is in the file after list.js, as one module.
/**
 * What is packed under this id.
 * @param {string} id
 */
const unpack = async (id) => {
  const packed = document.getElementById(id)?.textContent ?? "";
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  /** @type {new (format: string) => ReadableWritablePair<Uint8Array, Uint8Array>} */
  const Inflate = Reflect.get(globalThis, "DecompressionStream");
  const inflated = new Inflate("deflate-raw");
  const stream = new Blob([bytes]).stream().pipeThrough(inflated);
  return JSON.parse(await new Response(stream).text());
};

const list = /** @type {HTMLElement} */ (document.querySelector("#stages > .list"));
const size = Number(list.dataset.block);
/**
 * The HTML of the rows of each block of the file.
 * @type {Map<number, Promise<string[]>>}
 */
const kept = new Map();
list.querySelectorAll(":scope > .block").forEach((block, number) => {
  if (block.childElementCount === 0) return;
  kept.set(number, Promise.resolve([...block.children].map((row) => row.outerHTML)));
});
/** @param {number} number */
const rowsOf = (number) => {
  let rows = kept.get(number);
  if (rows === undefined) {
    rows = unpack(`rows-${number}`);
    kept.set(number, rows);
    // Few blocks are unpacked at a time: the memory does not grow with what was looked at.
    if (kept.size > 12) {
      const oldest = kept.keys().next().value;
      if (document.getElementById(`rows-${oldest}`)) kept.delete(/** @type {number} */ (oldest));
    }
  }
  return rows;
};

/** The stages that are listed, by their place in the file; all of them without a filter. */
/** @type {number[] | null} */
let chosen = null;
/** @param {number} number */
const load = async (number) => {
  if (chosen === null) return (await rowsOf(number)).join("");
  const places = chosen.slice(number * size, (number + 1) * size);
  const rows = await Promise.all(
    places.map(async (at) => (await rowsOf(Math.floor(at / size)))[at % size]),
  );
  return rows.join("");
};
const view = windowed(list, load);
list.addEventListener("filled", (event) => {
  localTimes(/** @type {CustomEvent} */ (event).detail);
});

/** @typedef {[name: string, failed: number, ms: number, cost: number, tokens: number]} Entry */
/** @type {Promise<Entry[]> | undefined} */
let index;
/** @returns {Promise<Entry[]>} */
const entries = () => (index ??= unpack("index"));

const tools = /** @type {HTMLElement} */ (document.querySelector("#stages > .tools"));
const search = /** @type {HTMLInputElement} */ (tools.querySelector("input"));
const count = /** @type {HTMLElement} */ (document.getElementById("count"));
tools.hidden = false;
let filter = "all";

const apply = async () => {
  const all = await entries();
  const text = search.value.trim().toLowerCase();
  let places = all.map((_, at) => at);
  if (text !== "") places = places.filter((at) => all[at][0].toLowerCase().includes(text));
  if (filter === "failed") places = places.filter((at) => all[at][1] === 1);
  if (filter === "slow") places.sort((a, b) => all[b][2] - all[a][2]);
  if (filter === "costly") {
    places = places.filter((at) => all[at][3] > 0 || all[at][4] > 0);
    places.sort((a, b) => all[b][3] - all[a][3] || all[b][4] - all[a][4]);
  }
  const isAll = text === "" && filter === "all";
  chosen = isAll ? null : places;
  count.textContent = isAll ? "" : `${places.length} of ${all.length}`;
  view.reset(Math.ceil(places.length / size));
};
for (const button of tools.querySelectorAll("button")) {
  button.addEventListener("click", () => {
    filter = button.dataset.filter ?? "all";
    tools.querySelectorAll("button").forEach((it) => {
      it.setAttribute("aria-pressed", String(it === button));
    });
    void apply();
  });
}
let waiting = 0;
search.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = window.setTimeout(() => void apply(), 150);
});

/** Opens the stage, or the message of a stage, that the address names. */
const follow = async () => {
  const id = decodeURIComponent(location.hash.slice(1));
  if (id === "") return;
  if (document.getElementById(id) === null) {
    const all = await entries();
    const stage = id.replace(/:\d+$/, "").split("›")[0];
    const at = all.findIndex((entry) => entry[0] === stage);
    if (at < 0) return;
    if (chosen !== null) {
      filter = "all";
      search.value = "";
      tools.querySelectorAll("button").forEach((it) => {
        it.setAttribute("aria-pressed", String(it.dataset.filter === "all"));
      });
      await apply();
    }
    await view.show(Math.floor(at / size));
    document.getElementById(stage)?.setAttribute("open", "");
  }
  const target = document.getElementById(id);
  for (let it = target; it !== null; it = it.parentElement) {
    if (it instanceof HTMLDetailsElement) it.open = true;
  }
  target?.scrollIntoView({ block: "start" });
};
window.addEventListener("hashchange", () => void follow());

document.addEventListener("click", async (event) => {
  const button = event.target instanceof Element ? event.target.closest("button.show") : null;
  const text = button?.closest(".more")?.previousElementSibling;
  if (!(text instanceof HTMLElement) || text.dataset.text === undefined) return;
  text.textContent = await unpack(`text-${text.dataset.text}`);
  button?.closest(".more")?.remove();
});

document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLInputElement && event.target.type === "search";
  if (event.key === "Escape" && isTyping) {
    search.value = "";
    void apply();
    search.blur();
  }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    search.focus();
  }
  if (event.key === "j" || event.key === "k") {
    const rows = /** @type {HTMLElement[]} */ ([...list.querySelectorAll("details.stage > summary")]);
    const now = rows.findIndex((row) => row.parentElement?.contains(document.activeElement));
    const next = rows[now < 0 ? 0 : now + (event.key === "j" ? 1 : -1)];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }
});

copyable(async (text) => {
  const packed = text instanceof HTMLElement ? text.dataset.text : undefined;
  return packed === undefined ? (text.textContent ?? "") : unpack(`text-${packed}`);
});
localTimes(document);
reachable(document);
showPictures(document);
document.addEventListener("toggle", (event) => reachable(/** @type {Element} */ (event.target)), true);
void follow();
