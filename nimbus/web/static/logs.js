// A log that grows, and its earlier parts, so that the browser's own search finds what is in the window.
import { get } from "./page.js";

const WINDOW = 2 << 20, STEP = 256 << 10, EVERY = 2000;

async function pieces(log, query) {
  const request = await get(`${log.dataset.log}&${query}`);
  const found = request.status === 200 ? request.response.querySelector("[data-log]") : null;
  return found && { ...found.dataset, parts: [...found.querySelectorAll("pre")].map((pre) => document.importNode(pre, true)) };
}

const held = (log) => Number(log.dataset.end) - Number(log.dataset.start);

/** Adds what has come since; whether there was anything. */
async function grow(log, tail) {
  const more = await pieces(log, `offset=${log.dataset.end}`);
  if (!more) return false;
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  if (more.parts.length) log.querySelector(".empty")?.remove();
  log.append(...more.parts);
  Object.assign(log.dataset, { end: more.end, state: more.state });
  const shown = document.getElementById("log-end");
  if (shown) shown.textContent = more.end;
  if (tail && atEnd && more.parts.length) {
    while (held(log) > WINDOW) {
      const first = log.querySelector("pre");
      log.dataset.start = first.dataset.end;
      first.remove();
    }
    log.scrollTop = log.scrollHeight;
  }
  return more.parts.length > 0;
}

/** Adds earlier parts until the window is full; what the reader sees stays where it is. */
async function fill(log) {
  while (log.isConnected && Number(log.dataset.start) > 0 && held(log) < WINDOW) {
    const start = Number(log.dataset.start), from = Math.max(0, start - STEP);
    const more = await pieces(log, `offset=${from}&until=${start}`);
    if (!more || Number(log.dataset.start) !== start) return;
    const below = log.scrollHeight - log.scrollTop;
    log.prepend(...more.parts);
    log.dataset.start = from;
    log.scrollTop = log.scrollHeight - below;
  }
}

async function follow(log, tail) {
  while (log.isConnected && (tail || held(log) < WINDOW)) {
    const ended = log.dataset.state !== "open";
    const more = !document.hidden && await grow(log, tail);
    if (ended && !more && !document.hidden) return;
    if (!more) await new Promise((done) => setTimeout(done, EVERY));
  }
}

export function begin() {
  const log = document.querySelector("[data-log]:not([data-followed])");
  if (!log) return;
  const tail = !new URLSearchParams(location.search).has("offset");
  log.dataset.followed = "yes";
  if (tail) log.scrollTop = log.scrollHeight;
  follow(log, tail);
  if (tail && location.pathname.endsWith("/log")) fill(log);
}
