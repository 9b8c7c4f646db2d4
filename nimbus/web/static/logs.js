// A growing log and its earlier parts. The browser's own search finds text in the loaded window.
import { get } from "./page.js";

const WINDOW = 2 << 20, EVERY = 2000;

async function pieces(log, query) {
  const request = await get(`${log.dataset.log}&${query}`);
  const found = request.status === 200 ? request.response.querySelector("[data-log]") : null;
  return found && { ...found.dataset, parts: [...found.querySelectorAll("pre")].map((pre) => document.importNode(pre, true)) };
}

// True while the reader follows the end: until they scroll up, and again after they scroll back. The scroll position
// alone does not show this: a part that is not drawn yet has an estimated height, and the browser takes a fifth of a
// second to scroll to where a key leads, from which a growth of the log would call it back.
let following = true, top = 0;
const LEADS_TO_END = { Home: false, PageUp: false, ArrowUp: false, End: true };

const wholePage = () => location.pathname.endsWith("/log");
// In bytes; a part counts for 32 KiB at least, because the numbers of short lines cost more than the lines.
const held = (log) => Math.max(Number(log.dataset.end) - Number(log.dataset.start), log.childElementCount << 15);

/** Scrolls several times: a part that comes into view is drawn, and may be higher than estimated. */
function toEnd(log, times = 5) {
  log.scrollTop = log.scrollHeight;
  top = log.scrollTop; // the browser reduces it by the height of the view
  if (times) requestAnimationFrame(() => following && toEnd(log, times - 1));
}

function scrolled({ target: log }) {
  const near = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  if (following) {
    if (near || log.scrollTop >= top - 4) return;
    following = false;
  } else following = near && log.scrollTop > top;
  top = log.scrollTop;
}

// A later position counts as scrolled down only from here on: a part that was drawn meanwhile may have moved it.
function pressed({ key, currentTarget: log }) {
  following = LEADS_TO_END[key] ?? following;
  top = log.scrollTop;
}

function wheeled({ deltaY, currentTarget: log }) {
  if (deltaY >= 0) return;
  following = false;
  top = log.scrollTop;
}

function show(log, { end, state }) {
  Object.assign(log.dataset, { end, state });
  const shown = document.getElementById("log-end");
  if (shown) shown.textContent = end;
}

/** Adds new bytes; true when there were any. */
async function grow(log, tail) {
  if (tail && !following && held(log) >= 2 * WINDOW) return false;
  const more = await pieces(log, `offset=${log.dataset.end}`);
  if (!more) return false;
  scrolled({ target: log }); // the reader may have scrolled up, before the event has arrived
  if (tail && following && Number(more.size) - Number(more.end) > WINDOW) return skip(log);
  if (more.parts.length) log.querySelector(".empty")?.remove();
  log.append(...more.parts);
  show(log, more);
  if (tail && following) {
    while (held(log) > WINDOW) {
      const first = log.querySelector("pre");
      log.dataset.start = first.dataset.end;
      first.remove();
    }
    toEnd(log);
  }
  return more.parts.length > 0;
}

/** Adds earlier parts until the window is full. The visible part does not move. */
async function fill(log) {
  while (log.isConnected && Number(log.dataset.start) > 0 && held(log) < WINDOW) {
    const start = Number(log.dataset.start);
    const more = await pieces(log, `until=${start}`);
    if (!more?.parts.length || Number(log.dataset.start) !== start) return;
    const below = log.scrollHeight - log.scrollTop;
    log.prepend(...more.parts);
    log.dataset.start = more.start;
    top = log.scrollTop = log.scrollHeight - below;
  }
}

/** Jumps to the end: piece by piece, a reader would be minutes behind a task that writes fast. */
async function skip(log) {
  const end = await pieces(log, "");
  if (!end) return false;
  log.replaceChildren(...end.parts);
  log.dataset.start = end.start;
  show(log, end);
  toEnd(log);
  if (wholePage()) fill(log);
  return true;
}

async function follow(log, tail) {
  while (log.isConnected && (tail || held(log) < WINDOW)) {
    const ended = log.dataset.state !== "open";
    const more = !document.hidden && await grow(log, tail);
    if (ended && !more && !document.hidden) return;
    if (!more) await new Promise((done) => setTimeout(done, EVERY));
  }
}

/** The number of the line that the address names; the page is opened there if the line is not in this part. */
function lineWanted() {
  const line = /^#L(\d+)$/.exec(location.hash)?.[1], query = new URLSearchParams(location.search);
  if (!line || !wholePage() || document.getElementById(`L${line}`) || query.get("line") === line) return line;
  query.delete("offset");
  query.set("line", line);
  location.replace(`?${query}#L${line}`);
  return line;
}
addEventListener("hashchange", lineWanted);

export function begin() {
  const log = document.querySelector("[data-log]:not([data-followed])");
  if (!log) return;
  const query = new URLSearchParams(location.search), line = lineWanted();
  const tail = !["offset", "until", "line"].some((name) => query.has(name));
  log.dataset.followed = "yes";
  following = !line;
  log.addEventListener("scroll", scrolled);
  log.addEventListener("keydown", pressed);
  log.addEventListener("wheel", wheeled, { passive: true });
  if (tail && following) toEnd(log);
  follow(log, tail);
  if (tail && wholePage()) fill(log);
}
