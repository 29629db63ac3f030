"use strict";

/**
 * A list of many rows of which only some blocks are in the page: those near the window, and those with
 * something open or focused in them. Blocks that are left out keep their height.
 *
 * @param {HTMLElement} list the element of the blocks
 * @param {(block: number) => Promise<string>} load the HTML of a block
 * @returns {{ reset: (blocks: number) => void, show: (block: number) => Promise<HTMLElement> }}
 */
function windowed(list, load) {
  const ROW = 33;
  /** @type {HTMLElement[]} */
  let blocks = [];

  /** @param {HTMLElement} block */
  const isUsed = (block) =>
    block.contains(document.activeElement) || block.querySelector("details[open].stage") !== null;

  /** @param {HTMLElement} block */
  const fill = async (block) => {
    if (block.dataset.state !== "empty") return;
    block.dataset.state = "loading";
    const html = await load(Number(block.dataset.number));
    if (!block.isConnected || block.dataset.state !== "loading") return;
    block.innerHTML = html;
    block.style.minHeight = "";
    block.dataset.state = "full";
    list.dispatchEvent(new CustomEvent("filled", { detail: block }));
  };

  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const block = /** @type {HTMLElement} */ (entry.target);
        if (entry.isIntersecting) {
          void fill(block);
        } else if (block.dataset.state === "full" && !isUsed(block)) {
          block.style.minHeight = `${entry.boundingClientRect.height}px`;
          block.replaceChildren();
          block.dataset.state = "empty";
        }
      }
    },
    { rootMargin: "1200px 0px" },
  );

  const watch = () => {
    blocks.forEach((block, number) => {
      block.dataset.number = String(number);
      block.dataset.state = block.childElementCount > 0 ? "full" : "empty";
      if (block.dataset.state === "empty") {
        block.style.minHeight = `${ROW * Number(list.dataset.block)}px`;
      }
      observer.observe(block);
    });
  };

  blocks = /** @type {HTMLElement[]} */ ([...list.querySelectorAll(":scope > .block")]);
  watch();
  return {
    reset(count) {
      observer.disconnect();
      blocks = Array.from({ length: count }, () => {
        const block = document.createElement("div");
        block.className = "block";
        return block;
      });
      list.replaceChildren(...blocks);
      watch();
    },
    async show(number) {
      const block = blocks[number];
      await fill(block);
      return block;
    },
  };
}

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
