// Keeps pages up to date. One tab opens one stream for all tabs, because a browser allows six connections to a host. Hidden tabs open none.
import { refresh, reachable, topics } from "./page.js";

const POLL = 5000, SILENT = 12000, LOOK = 30000;
const shown = document.getElementById("live"), me = crypto.getRandomValues(new Uint32Array(2)).join("-");
const channel = new BroadcastChannel("nimbus");
const wanted = new Map();
let looked = 0, source = null, release = null, heard = -Infinity, open = "", last = "";

function say(state) {
  const words = { yes: "live", poll: "every 5 s", no: "not live", still: "as loaded" }[state];
  if (shown.dataset.live !== state) { shown.dataset.live = state; shown.textContent = words; }
}

/** A page without topics is not fetched again: its content never changes, or it answers a form. A log follows itself. */
function state() {
  if (!topics().length) return document.querySelector("[data-log]") ? undefined : say("still");
  say(!reachable() ? "no" : performance.now() - heard < SILENT ? "yes" : "poll");
}

function changed(topic) {
  if (!document.hidden && topics().includes(topic)) refresh().then(state);
}

function tell(message) { channel.postMessage(message); receive({ data: message }); }

function receive({ data }) {
  if (data.want) {
    if (data.want.length) wanted.set(data.tab, { topics: data.want, at: performance.now() }); else wanted.delete(data.tab);
    if (release) stream();
  } else {
    heard = data.alive ? performance.now() : -Infinity;
    if (data.topic) changed(data.topic);
    // The page is fetched now, so it includes changes from while no stream was open.
    if (data.again && !document.hidden && topics().length) refresh().then(state);
    state();
  }
}

function stream() {
  const now = performance.now();
  for (const [tab, { at }] of wanted) if (now - at > 4 * POLL) wanted.delete(tab);
  const all = [...new Set([...wanted.values()].flatMap((one) => one.topics))].sort();
  const query = new URLSearchParams(all.map((topic) => ["topic", topic])).toString();
  if (query === open && source && source.readyState !== EventSource.CLOSED) return;
  source?.close();
  open = query;
  if (!query) return;
  source = new EventSource(`/api/v1/events?${query}${last ? `&since=${last}` : ""}`);
  source.onopen = () => tell({ alive: true, again: true });
  source.onerror = () => tell({ alive: false });
  source.addEventListener("changed", (event) => {
    last = event.lastEventId || last;
    tell({ alive: true, topic: JSON.parse(event.data).topic });
  });
  source.addEventListener("reset", () => { last = ""; tell({ alive: true, again: true }); });
}

function hold() {
  if (document.hidden || release || !topics().length) return;
  const asked = new AbortController();
  document.addEventListener("visibilitychange", () => asked.abort(), { once: true });
  navigator.locks.request("nimbus-stream", { signal: asked.signal }, () => new Promise((done) => {
    if (document.hidden) return done();
    release = done;
    channel.postMessage({ ask: true });
    stream();
  })).catch(() => {});
}

function appear() {
  const want = document.hidden ? [] : topics();
  channel.postMessage({ tab: me, want });
  receive({ data: { tab: me, want } });
  if (document.hidden) {
    source?.close();
    source = null;
    open = "";
    release?.();
    release = null;
  } else {
    if (topics().length) refresh().then(state); else state();
    hold();
  }
}

function tick() {
  if (document.hidden || !topics().length) return;
  channel.postMessage({ tab: me, want: topics() });
  receive({ data: { tab: me, want: topics() } });
  if (release && source?.readyState === EventSource.OPEN) tell({ alive: true });
  // An open stream sends nothing during a ZooKeeper outage, so a page also polls at long intervals.
  const now = performance.now();
  if (now - heard > SILENT || !reachable() || now - looked > LOOK) {
    looked = now;
    refresh().then(state);
  }
}

export function begin() {
  channel.onmessage = receive;
  addEventListener("pagehide", () => channel.postMessage({ tab: me, want: [] }));
  document.addEventListener("visibilitychange", appear);
  setInterval(tick, POLL);
  appear();
}
