/**
 * A list of many rows of which only some blocks are in the page: those near the window, and those with
 * something open or focused in them. Blocks that are left out keep their height.
 *
 * @param {HTMLElement} list the element of the blocks
 * @param {(block: number) => Promise<string>} load the HTML of a block
 * @returns {{ reset: (blocks: number) => void, show: (block: number) => Promise<HTMLElement>, resize: (blocks: number) => void, reload: (isWanted: (block: HTMLElement) => boolean) => void }}
 */
export function windowed(list, load) {
  const ROW = 33;
  /** A list of so few blocks stays whole: it can be printed, and searched with the browser. */
  const keep = Number(list.dataset.keep ?? 0);
  /** @type {HTMLElement[]} */
  let blocks = [];
  /**
   * The blocks near the window.
   * @type {WeakSet<HTMLElement>}
   */
  const near = new WeakSet();

  /** @param {HTMLElement} block */
  const isUsed = (block) =>
    block.contains(document.activeElement) || block.querySelector("details[open].stage") !== null;

  /** @param {HTMLElement} block */
  const fill = async (block) => {
    if (block.dataset.state !== "empty") return;
    block.dataset.state = "loading";
    const html = await load(Number(block.dataset.number));
    if (!block.isConnected || block.dataset.state !== "loading") return;
    if (!near.has(block)) {
      // It was scrolled away meanwhile.
      block.dataset.state = "empty";
      return;
    }
    block.innerHTML = html;
    block.style.minHeight = "";
    block.dataset.state = "full";
    list.dispatchEvent(new CustomEvent("filled", { detail: block }));
  };

  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const block = /** @type {HTMLElement} */ (entry.target);
        if (entry.isIntersecting) near.add(block);
        else near.delete(block);
        if (entry.isIntersecting) {
          void fill(block);
        } else if (block.dataset.state === "full" && blocks.length > keep && !isUsed(block)) {
          block.style.minHeight = `${entry.boundingClientRect.height}px`;
          block.replaceChildren();
          block.dataset.state = "empty";
        }
      }
    },
    { rootMargin: `${list.dataset.margin ?? 1200}px 0px` },
  );

  /** @param {HTMLElement} block @param {number} number */
  const watchBlock = (block, number) => {
    block.dataset.number = String(number);
    block.dataset.state = block.childElementCount > 0 ? "full" : "empty";
    if (block.dataset.state === "empty") {
      block.style.minHeight = `${ROW * Number(list.dataset.block)}px`;
    }
    observer.observe(block);
  };
  const watch = () => blocks.forEach(watchBlock);
  const newBlock = () => {
    const block = document.createElement("div");
    block.className = "block";
    return block;
  };

  /**
   * Loads a block again that stays where it is.
   * @param {HTMLElement} block
   */
  const reload = async (block) => {
    const html = await load(Number(block.dataset.number));
    if (!block.isConnected || block.dataset.state !== "full" || html === "") return;
    const active = block.contains(document.activeElement) ? document.activeElement : null;
    block.innerHTML = html;
    block.style.minHeight = "";
    const same = active?.id ? document.getElementById(active.id) : null;
    same?.focus({ preventScroll: true });
    list.dispatchEvent(new CustomEvent("filled", { detail: block }));
  };

  blocks = /** @type {HTMLElement[]} */ ([...list.querySelectorAll(":scope > .block")]);
  watch();
  return {
    reset(count) {
      observer.disconnect();
      blocks = Array.from({ length: count }, newBlock);
      list.replaceChildren(...blocks);
      watch();
    },
    async show(number) {
      const block = blocks[number];
      near.add(block);
      await fill(block);
      return block;
    },
    resize(count) {
      for (const block of blocks.splice(count)) {
        observer.unobserve(block);
        block.remove();
      }
      while (blocks.length < count) {
        const block = newBlock();
        blocks.push(block);
        list.append(block);
        watchBlock(block, blocks.length - 1);
      }
    },
    reload(isWanted) {
      for (const block of blocks) {
        if (block.dataset.state === "full" && isWanted(block)) void reload(block);
      }
    },
  };
}

/**
 * Times in the zone of the reader.
 * @param {ParentNode} root
 */
export function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([title])")) {
    const written = time.getAttribute("datetime") ?? "";
    const date = new Date(written);
    if (Number.isNaN(date.getTime())) continue;
    time.setAttribute("title", written);
    time.textContent = date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  }
}

/**
 * Texts that scroll can be scrolled with the keyboard.
 * @param {ParentNode} root
 */
export function reachable(root) {
  for (const text of root.querySelectorAll("pre")) {
    const scrolls = text.scrollWidth > text.clientWidth || text.scrollHeight > text.clientHeight;
    if (scrolls) text.tabIndex = 0;
  }
}

/**
 * Scrolls pictures that are wider than their place to what matters: what runs, waits or failed, else the start.
 * @param {ParentNode} root
 */
export function showPictures(root) {
  for (const canvas of root.querySelectorAll(".canvas")) {
    if (canvas.scrollWidth <= canvas.clientWidth && canvas.scrollHeight <= canvas.clientHeight) continue;
    const states = [".running", ".waiting", ".failed", ".partial"];
    const found = states.map((state) => canvas.querySelector(`g.node${state}`)).find((it) => it !== null);
    const node = found ?? canvas.querySelector("g.node.kind-start");
    if (!node) continue;
    const [place, window] = [node.getBoundingClientRect(), canvas.getBoundingClientRect()];
    canvas.scrollLeft += place.left + place.width / 2 - (window.left + window.width / 2);
    if (found) canvas.scrollTop += place.top + place.height / 2 - (window.top + window.height / 2);
  }
}

/**
 * Texts can be copied: by a button that is beside a text while the pointer is on it or the focus in it, and by the
 * key `c` in a text or a message. `details.piece` of a conversation are opened and closed together.
 * @param {(text: Element) => Promise<string>} whole all of a text, also where the page has only its beginning
 */
export function copyable(whole = async (text) => text.textContent ?? "") {
  const texts = "pre.text, pre.diff";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  /** @type {Element | null} */
  let beside = null;

  /** @param {Element} text */
  const copy = async (text) => {
    const isDone = await navigator.clipboard.writeText(await whole(text)).then(
      () => true,
      () => false,
    );
    // Without the right to write to the clipboard, the browser's own copy has what is selected.
    if (!isDone) getSelection()?.selectAllChildren(text);
    button.textContent = isDone ? "Copied" : "Selected";
  };
  /** @param {Event} event */
  const offer = (event) => {
    const target = event.target instanceof Element ? event.target : null;
    const text = target?.closest(texts) ?? null;
    if (target === button || text === beside) return;
    beside = text;
    button.remove();
    if (text === null) return;
    button.textContent = "Copy";
    // After it, it would be between the text and what belongs to it.
    text.before(button);
    const [place, origin] = [text.getBoundingClientRect(), (button.offsetParent ?? document.body).getBoundingClientRect()];
    button.style.top = `${place.top - origin.top + 6}px`;
    button.style.left = `${place.right - origin.left - button.offsetWidth - 6}px`;
  };
  document.addEventListener("pointerover", offer);
  document.addEventListener("focusin", offer);
  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    if (target === button && beside) void copy(beside);
    const all = target?.closest("button.all")?.closest("details")?.querySelectorAll("details.piece");
    if (!all) return;
    const pieces = /** @type {HTMLDetailsElement[]} */ ([...all]);
    const isOpen = pieces.every((it) => it.open);
    for (const piece of pieces) piece.open = !isOpen;
  });
  document.addEventListener("keydown", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    if (event.key !== "c" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (target?.matches("input, select, textarea")) return;
    const place = target?.closest(`${texts}, .message`);
    const text = place?.matches(texts) ? place : place?.querySelector(texts);
    if (!text) return;
    for (let it = text.parentElement; it !== null && it !== place; it = it.parentElement) {
      if (it instanceof HTMLDetailsElement) it.open = true;
    }
    text.dispatchEvent(new Event("pointerover", { bubbles: true }));
    void copy(text);
  });
}
