// DOM morphing: updates existing nodes to match new ones. Focus, selection, scroll position, open details and
// form input are kept. Elements are matched by id when they move.

export function morphChildren(target, source) {
  const known = new Map();
  for (const child of target.children) if (child.id) known.set(child.id, child);
  let here = target.firstChild;
  for (const desired of [...source.childNodes]) {
    while (isBlank(here) && !isBlank(desired)) here = here.nextSibling;
    const match = pick(here, desired, known);
    if (match === null) {
      target.insertBefore(desired, here);
      continue;
    }
    if (match === here) here = here.nextSibling;
    else target.insertBefore(match, here);
    morph(match, desired);
  }
  while (here !== null) {
    const next = here.nextSibling;
    here.remove();
    here = next;
  }
}

function isBlank(node) {
  return node?.nodeType === Node.TEXT_NODE && !node.nodeValue.trim();
}

function pick(here, desired, known) {
  if (desired.id) return known.get(desired.id) ?? null;
  if (here === null || here.id || here.nodeType !== desired.nodeType || here.nodeName !== desired.nodeName) return null;
  return here;
}

function morph(target, source) {
  if (target.nodeType !== Node.ELEMENT_NODE) {
    if (target.nodeValue !== source.nodeValue) target.nodeValue = source.nodeValue;
    return;
  }
  if (target.nodeName !== source.nodeName) {
    target.replaceWith(source);
    return;
  }
  if (target.hasAttribute("data-keep") || target.isEqualNode(source)) return;
  for (const { name } of [...target.attributes]) {
    if (!source.hasAttribute(name) && !isKept(target, name)) target.removeAttribute(name);
  }
  for (const { name, value } of source.attributes) {
    if (target.getAttribute(name) !== value && !isKept(target, name)) target.setAttribute(name, value);
  }
  if (target !== document.activeElement || target.childElementCount) morphChildren(target, source);
}

function isKept(element, name) {
  if (name === "open") return element.nodeName === "DETAILS";
  if (name === "hidden") return element.nodeName === "INPUT";
  return false;
}
