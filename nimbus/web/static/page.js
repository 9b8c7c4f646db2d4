// Fetches this page again and applies the differences. A response of type "document" needs no trusted type.
import { morph } from "./morph.js";
import { show } from "./times.js";

const PAUSE = 5000;
let tag = null, busy = false, again = false, failed = 0, notBefore = 0;
const notice = document.getElementById("notice");

export function get(url, headers = {}) {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    request.open("GET", url);
    request.responseType = "document";
    request.timeout = 30000;
    request.setRequestHeader("Accept", "text/html"); // the server redirects to the login page if necessary
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.onloadend = () => resolve(request);
    request.send();
  });
}

/** Shows a notice; true when it is new. An equal one is kept: it would be read out again, and lose the focus. */
function say(text) {
  if (notice.dataset.said === text) return false;
  notice.dataset.said = text;
  notice.hidden = !text;
  notice.textContent = text;
  return true;
}

function unreachable() {
  const by = document.querySelector(".by b")?.textContent ?? "The scheduler";
  if (!say(`${by} does not answer. It is asked again every few seconds.`)) return;
  for (const link of document.querySelectorAll("#others a")) {
    const other = link.cloneNode(true);
    other.textContent = `Go on at ${link.textContent}`;
    notice.append(" ", other);
  }
}

/** Fetches this page and applies the differences. Calls during a refresh are merged into one more refresh. */
export async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  do {
    again = false;
    const wait = notBefore - performance.now();
    if (wait > 0) await new Promise((done) => setTimeout(done, wait));
    const began = performance.now();
    const request = await get(location.href, tag ? { "If-None-Match": tag } : {});
    // A quarter of the time is spent on updates: a page of a thousand tasks is costly for both sides.
    // The pause has a limit, because an answer that waited for ZooKeeper took long and was not costly.
    notBefore = performance.now() + Math.min(3 * (performance.now() - began), PAUSE);
    take(request);
  } while (again && !document.hidden);
  busy = false;
}

function take(request) {
  failed = request.status && request.status < 500 ? 0 : failed + 1;
  if (request.status === 304) return say("");
  const place = request.responseURL && new URL(request.responseURL).pathname;
  if (place && place !== location.pathname) return location.assign(request.responseURL); // to log in
  // Not read if there is no body: the browser would build an error document with inline styles.
  const fresh = request.status ? request.response : null;
  if (!fresh?.getElementById("main")) return unreachable();
  // A page that is itself an error page is replaced; any other page is kept.
  if (request.status >= 500 && !document.getElementById("unavailable")) return say(`${fresh.getElementById("why")?.textContent.trim()} What is shown is from before.`);
  tag = request.getResponseHeader("ETag");
  say("");
  if (document.title !== fresh.title) document.title = fresh.title;
  morph(document.body, fresh.body);
  show();
  dispatchEvent(new Event("nimbus:shown"));
}

export const topics = () => document.getElementById("main").dataset.topics.split(" ").filter(Boolean);
export const reachable = () => failed === 0;
