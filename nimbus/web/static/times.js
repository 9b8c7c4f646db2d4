// Times: shown relative to now; exact in the title, and in place while focused or under the pointer.
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

export function span(seconds) {
  let left = Math.max(0, Math.round(seconds)), parts = [], begun = 0;
  for (const [size, unit] of UNITS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count) parts.push(`${count} ${unit}`);
    if (count || begun) begun += 1;
    if (begun === 2) break;
  }
  return parts.join(" ") || "0 s";
}

function relative(seconds) {
  const ago = seconds >= 0, far = Math.abs(seconds);
  if (far < 5) return "now";
  const [size, unit] = UNITS.find(([size]) => far >= size);
  const text = `${Math.round(far / size)} ${unit}`;
  return ago ? `${text} ago` : `in ${text}`;
}

function exact(time) { return time.title || time.textContent; }

export function show(root = document) {
  const now = Date.now(), watched = document.querySelector("[data-exact]");
  for (const time of root.querySelectorAll("time[datetime]")) {
    if (!time.title) time.title = time.dateTime.replace("T", " ").replace(/\.\d+/, "").replace("+00:00", "Z");
    const seconds = (now - Date.parse(time.dateTime)) / 1000;
    const text = time.className === "for" ? span(seconds) : watched?.contains(time) ? exact(time) : relative(seconds);
    if (time.textContent !== text) time.textContent = text;
  }
}

function point(event) {
  const place = event.target.closest?.("tr,dd");
  document.querySelector("[data-exact]")?.removeAttribute("data-exact");
  place?.setAttribute("data-exact", "");
  show();
}

export function begin() {
  addEventListener("focusin", point);
  show();
  setInterval(() => document.hidden || show(), 1000);
}
