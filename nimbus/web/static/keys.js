// Keys: every function of a page works without a pointer.
const THEMES = ["auto", "light", "dark"];
let going = false;

function theme() {
  const root = document.documentElement;
  root.dataset.theme = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* only for this page then */ }
}

function step(by) {
  const rows = [...document.querySelectorAll("[data-row]")];
  const at = rows.findIndex((row) => row === document.activeElement || row.closest("tr,li")?.contains(document.activeElement));
  rows[at < 0 ? 0 : Math.min(Math.max(at + by, 0), rows.length - 1)]?.focus();
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The next node of a drawing in a direction: left and right to the next layer, up and down in the same layer. */
function walk(from, [right, down]) {
  const box = (node) => node.querySelector("rect, text").getBoundingClientRect();
  const here = box(from);
  let best = null, least = Infinity;
  for (const node of from.ownerSVGElement.querySelectorAll("a")) {
    const there = box(node), dx = there.x - here.x, dy = there.y - here.y;
    const along = dx * right + dy * down, aside = Math.abs(dx * down) + Math.abs(dy * right);
    const distance = right ? 1e5 * Math.round(along) + aside : 1e5 * Math.round(aside) + along;
    if (along > 1 && distance < least) { best = node; least = distance; }
  }
  best?.focus();
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const active = document.activeElement;
  if (event.key in ARROWS && active?.ownerSVGElement) { event.preventDefault(); return walk(active, ARROWS[event.key]); }
  if (active?.matches("input,select,textarea") || document.querySelector("dialog[open]")) {
    if (event.key === "Escape") active?.blur();
    return;
  }
  const goes = going && document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
  going = false;
  const does = {
    "/": () => document.getElementById("q").focus(),
    "?": () => document.getElementById("keys").showModal(),
    g: () => { going = true; }, // until the next key, without a time limit
    j: () => step(1), k: () => step(-1), t: theme,
  }[event.key];
  const link = goes || document.querySelector(`[data-hotkey="${CSS.escape(event.key)}"]`);
  if (!goes && does) { event.preventDefault(); does(); } else if (link) { event.preventDefault(); link.click(); }
}

async function copy(event) {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.value || document.getElementById(button.dataset.copy).textContent);
  button.textContent = button.value ? "✓" : "Copied";
}

function tick({ target }) {
  if (target.id === "tick-all") for (const box of document.querySelectorAll("#rows [name=name]")) box.checked = target.checked;
}

function reveal() {
  const all = document.getElementById("tick-all");
  if (all) all.hidden = false;
  for (const button of document.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
}

export function begin() {
  addEventListener("keydown", pressed);
  addEventListener("click", copy);
  addEventListener("change", tick);
  addEventListener("nimbus:shown", reveal);
  document.getElementById("keys-link").addEventListener("click", (event) => { event.preventDefault(); document.getElementById("keys").showModal(); });
  reveal();
}
