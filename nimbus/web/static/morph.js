// Changes one tree into another and keeps equal nodes, so that focus, selection, scroll and open details survive.
const OWN = new Set(["open", "data-exact", "data-live"]);

function key(node) { return node.nodeType === 1 ? node.id || node.dataset?.key || null : null; }

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);
}

function attributes(old, fresh) {
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value && !OWN.has(name)) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !OWN.has(name) && !(name === "title" && old.nodeName === "TIME")) old.removeAttribute(name);
}

export function morph(old, fresh) {
  if (old.nodeType !== 1) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.hasAttribute("data-keep")) return;
  if (old.nodeName === "TIME") { // times.js changes its text
    if (old.dateTime === fresh.dateTime && (old.dataset.at ?? old.textContent) === fresh.textContent) return;
    delete old.dataset.at;
  }
  if (old.hasAttribute("data-log")) return; // logs.js adds to it
  attributes(old, fresh);
  if (old.nodeName === "INPUT" || old.nodeName === "SELECT") return;
  children(old, fresh);
}

function children(old, fresh) {
  const known = new Map();
  for (const child of old.childNodes) if (key(child)) known.set(key(child), child);
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const named = key(wanted) && known.get(key(wanted));
    if (named && alike(named, wanted)) {
      if (named === at) at = at.nextSibling;
      else old.insertBefore(named, at);
      morph(named, wanted);
    } else if (at && alike(at, wanted)) {
      const next = at.nextSibling;
      morph(at, wanted);
      at = next;
    } else {
      old.insertBefore(document.importNode(wanted, true), at);
    }
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}
