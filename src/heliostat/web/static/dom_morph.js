// Changes what is there into what should be there, node by node: focus, selection, scroll, open details and what
// somebody has typed or ticked stay as they are. Elements with an id are recognised when they move.

export function morphChildren(target, source) {
  const known = new Map();
  for (const child of target.children) if (child.id) known.set(child.id, child);
  let here = target.firstChild;
  for (const wanted of [...source.childNodes]) {
    while (isBlank(here) && !isBlank(wanted)) here = here.nextSibling;
    const match = pick(here, wanted, known);
    if (match === null) {
      target.insertBefore(wanted, here);
      continue;
    }
    if (match === here) here = here.nextSibling;
    else target.insertBefore(match, here);
    morph(match, wanted);
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

function pick(here, wanted, known) {
  if (wanted.id) return known.get(wanted.id) ?? null;
  if (here === null || here.id || here.nodeType !== wanted.nodeType || here.nodeName !== wanted.nodeName) return null;
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
