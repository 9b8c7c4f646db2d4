// A graph: zoom, search, and what the node under the pointer or the focus needs and is needed by.
let zoom = 0, shown = null;
const drawing = () => document.querySelector("svg.graph");

function sized() {
  const svg = drawing(), bar = document.getElementById("zoom");
  if (bar) bar.hidden = !svg;
  if (!svg || !zoom) return;
  const { width, height } = svg.viewBox.baseVal;
  svg.setAttribute("width", width * zoom);
  svg.setAttribute("height", height * zoom);
}

function clicked({ target }) {
  const by = target.closest?.("[data-zoom]")?.dataset.zoom, svg = drawing();
  if (by === undefined || !svg) return;
  const { width, height } = svg.viewBox.baseVal, room = svg.parentElement;
  const whole = Math.min((room.clientWidth - 14) / width, (room.clientHeight - 14) / height, 1);
  zoom = Number(by) ? Math.min(Math.max(svg.getBoundingClientRect().width / width * Number(by), 0.05), 4) : whole;
  sized();
}

/** All nodes that can be reached, by number. */
function reached(start, next, seen = new Set([start])) {
  for (const at of seen) for (const one of next[at]) seen.add(one); // a set includes what is added on the way
  return seen;
}

function relate() {
  const svg = drawing(), node = shown?.isConnected ? shown : null;
  if (!svg) return;
  const nodes = [...svg.querySelectorAll("a")], at = nodes.indexOf(node);
  const needs = nodes.map((one) => (one.dataset.needs ?? "").split(" ").filter(Boolean).map(Number)), needed = nodes.map(() => []);
  needs.forEach((of, name) => of.forEach((need) => needed[need].push(name)));
  const before = at < 0 ? new Set() : reached(at, needs), after = at < 0 ? before : reached(at, needed);
  nodes.forEach((one, number) => one.classList.toggle("near", number !== at && (before.has(number) || after.has(number))));
  const edges = svg.querySelector(".edges").getAttribute("d").split("M").slice(1);
  let number = 0, near = "";
  needs.forEach((of, name) => of.forEach((need) => {
    const edge = edges[number++];
    if ((before.has(name) && before.has(need)) || (after.has(name) && after.has(need))) near += `M${edge}`;
  }));
  document.getElementById("near").setAttribute("d", near);
}

function pointed({ target }) {
  const node = target.closest?.(".graph a") ?? document.activeElement.closest(".graph a");
  if (node === shown) return;
  shown = node;
  relate();
}

function mark() {
  const text = document.querySelector("#graph-tools [name=find]")?.value.trim().toLowerCase();
  for (const node of drawing()?.querySelectorAll("a") ?? []) node.classList.toggle("hit", Boolean(text) && node.querySelector("title").textContent.toLowerCase().includes(text));
  return [...document.querySelectorAll(".graph .hit")];
}

const see = (node) => node?.scrollIntoView({ block: "nearest", inline: "center" });

/** Enter goes to the first node that was found. If none was, the server looks in the groups, too. */
function sent(event) {
  if (event.target.id !== "graph-tools") return;
  const [first] = mark();
  if (!first) return;
  event.preventDefault();
  first.focus();
}

function again() {
  sized();
  if (shown) relate();
  if (document.activeElement.matches("#graph-tools [name=find]")) mark();
}

export function begin() {
  addEventListener("click", clicked);
  addEventListener("pointerover", pointed);
  addEventListener("focusin", pointed);
  addEventListener("input", ({ target }) => target.matches("#graph-tools [name=find]") && see(mark()[0]));
  addEventListener("submit", sent);
  addEventListener("nimbus:shown", again);
  sized();
  const room = drawing()?.parentElement, first = room?.querySelector(".hit, .failed, .running");
  if (!first) return;
  const node = first.getBoundingClientRect(), place = room.getBoundingClientRect();
  room.scrollBy(node.x - place.x - room.clientWidth / 2, node.y - place.y - room.clientHeight / 2);
}
