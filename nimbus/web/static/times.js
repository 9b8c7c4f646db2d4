// Times: absolute, as sent. What has just happened is shown relative to now, and in full in a row with focus.
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]], RECENT = 3600;

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

function said(time, seconds, focused) {
  const { at } = time.dataset;
  if (time.className === "for") return span(seconds);
  if (time.className === "ahead") return `${at}, ${relative(seconds)}`;
  return time.className || focused || seconds < 0 || seconds >= RECENT ? at : relative(seconds);
}

export function show() {
  const now = Date.now(), focused = document.querySelector("[data-exact]");
  for (const time of document.querySelectorAll("time[datetime]")) {
    const seconds = (now - Date.parse(time.dateTime)) / 1000;
    time.dataset.at ??= time.textContent;
    const text = said(time, seconds, focused?.contains(time)), exact = time.dateTime.replace("T", " ").replace(/\.\d+/, "").replace("+00:00", "Z");
    if (time.textContent !== text) time.textContent = text;
    const title = `${exact}, ${relative(seconds)}`;
    if (time.title !== title) time.title = title;
  }
  for (const one of document.querySelectorAll("[data-since]")) {
    const text = span((now - Date.parse(one.dataset.since)) / 1000);
    if (one.textContent !== text) one.textContent = text;
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
  const mine = document.getElementById("my-zone"), zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (mine && zone) { mine.value = zone; mine.textContent = `mine, ${zone}`; mine.hidden = false; }
  show();
  setInterval(() => document.hidden || show(), 1000);
}
