"use strict";
const root = document.documentElement.dataset.root;
const field = document.getElementById("search");
const found = document.getElementById("found");

// Every word must be in a section; words in its title count more than words in its text.
function search(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const results = [];
  for (const [url, page, title, text] of window.SECTIONS || []) {
    const heading = `${page} ${title}`.toLowerCase();
    const body = text.toLowerCase();
    let score = 0;
    for (const word of words) {
      const inTitle = title.toLowerCase().includes(word) ? 10 : heading.includes(word) ? 4 : 0;
      const inText = Math.min(body.split(word).length - 1, 5);
      if (!inTitle && !inText) { score = 0; break; }
      score += inTitle + inText;
    }
    if (words.length > 1 && body.includes(query.toLowerCase().trim())) score += 5;
    if (score) results.push({ url, page, title, text, score });
  }
  return results.sort((a, b) => b.score - a.score).slice(0, 20);
}

// A text with the words marked, as nodes: nothing of it is read as HTML.
function marked(text, words) {
  const pattern = words.map(word => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
  const part = document.createDocumentFragment();
  text.split(new RegExp(`(${pattern})`, "gi")).forEach((piece, at) => {
    if (at % 2) { const mark = document.createElement("mark"); mark.textContent = piece; part.append(mark); }
    else part.append(piece);
  });
  return part;
}

function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const results = search(field.value);
  found.replaceChildren(...results.map(result => {
    const at = Math.max(0, result.text.toLowerCase().indexOf(words[0]) - 40);
    const link = document.createElement("a");
    link.href = root + result.url;
    link.append(marked(result.page === result.title ? result.title : `${result.page} › ${result.title}`, words));
    const small = document.createElement("small");
    small.append(marked((at ? "… " : "") + result.text.slice(at, at + 160), words));
    link.append(small);
    const item = document.createElement("li");
    item.append(link);
    return item;
  }));
  if (words.length && !results.length) {
    const item = document.createElement("li");
    item.textContent = "Nothing found";
    found.append(item);
  }
  found.hidden = !words.length;
}

field.addEventListener("input", show);
document.addEventListener("click", event => { if (!event.target.closest(".search")) found.hidden = true; });
field.addEventListener("focus", show);
field.addEventListener("keydown", event => {
  const links = [...found.querySelectorAll("a")];
  const current = links.findIndex(link => link.getAttribute("aria-selected") === "true");
  const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (move && links.length) {
    event.preventDefault();
    links[current]?.removeAttribute("aria-selected");
    const next = links[(current + move + links.length) % links.length];
    next.setAttribute("aria-selected", "true");
    next.scrollIntoView({ block: "nearest" });
  } else if (event.key === "Enter") {
    (links[current] || links[0])?.click();
    found.hidden = true;
  } else if (event.key === "Escape") {
    found.hidden = true;
    field.blur();
  }
});
document.addEventListener("keydown", event => {
  if (event.key === "/" && !event.target.closest("input, textarea") && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    field.focus();
  }
});

document.getElementById("theme").addEventListener("click", () => {
  const html = document.documentElement;
  const isDark = html.dataset.theme ? html.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  html.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("fabro-theme", html.dataset.theme);
});

const menu = document.getElementById("menu");
menu.addEventListener("click", () => {
  menu.setAttribute("aria-expanded", document.getElementById("pages").classList.toggle("open"));
});
document.querySelector("#pages a[aria-current]")?.scrollIntoView({ block: "center" });

// What is copied of a console block is its commands alone.
for (const block of document.querySelectorAll(".code")) {
  const button = document.createElement("button");
  button.textContent = "Copy";
  button.addEventListener("click", () => {
    const code = block.querySelector("code");
    const commands = [...code.querySelectorAll("b")].map(command => command.textContent);
    navigator.clipboard.writeText(commands.length ? commands.join("\n") : code.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  block.append(button);
}
