// What anybody needs to read and use a page: gives a list of faults in words. Run in the page, in the look to be checked.
(options) => {
  const faults = [];
  const say = (what, element) => faults.push(`${what}: ${element ? element.outerHTML.slice(0, 120).replace(/\s+/g, " ") : ""}`);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const seen = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest(".unseen, .skip");
  const CONTROLS = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex], [role=button], [role=link]";
  const isTarget = (element) => seen(element) && element.matches(CONTROLS) && !element.matches("main, [role=region], :disabled");

  // As it is read out: without what is hidden from sight or from readers. Words moved out of sight are read.
  function text(node) {
    if (node.nodeType === Node.TEXT_NODE) return node.nodeValue;
    if (node.nodeType !== Node.ELEMENT_NODE || node.getAttribute("aria-hidden") === "true" || !node.checkVisibility()) return "";
    return [...node.childNodes].map(text).join("");
  }

  function name(element) {
    const by = (element.getAttribute("aria-labelledby") ?? "").split(/\s+/).filter(Boolean);
    const texts = by.map((id) => document.getElementById(id)?.textContent ?? "");
    const labels = [...(element.labels ?? [])].map((label) => label.textContent);
    const inside = [...element.querySelectorAll("img[alt], [aria-label]")].filter((e) => e.checkVisibility()).map((e) => e.getAttribute("alt") || e.getAttribute("aria-label"));
    const own = element.matches("input, select, textarea") ? "" : text(element);
    const value = element.matches("input[type=submit], input[type=button]") ? element.value : "";
    return [...texts, element.getAttribute("aria-label"), ...labels, own, ...inside, value, element.title].join("").trim();
  }

  function document_() {
    if (!document.documentElement.lang) say("the page does not say its language");
    if (!document.title.trim()) say("the page has no title");
    for (const [selector, what] of [["main", "main part"], ["h1", "first heading"]]) {
      if (all(selector).filter(seen).length !== 1) say(`there is not exactly one ${what}`);
    }
    for (const selector of ["body > header", "body > footer"]) if (!document.querySelector(selector)) say(`no ${selector}`);
    const navs = all("nav").filter(seen);
    const names = navs.map(name).map((text, at) => navs[at].getAttribute("aria-label") ?? text);
    if (new Set(names).size !== names.length) say("two navigations have the same name", navs[0]);
    if (navs.length > 1) navs.filter((nav) => !nav.getAttribute("aria-label")).forEach((nav) => say("a navigation without a name", nav));
  }

  function headings() {
    let level = 0;
    for (const heading of all("h1, h2, h3, h4, h5, h6").filter(seen)) {
      const now = Number(heading.nodeName[1]);
      if (now > level + 1) say(`a heading of level ${now} after one of level ${level}`, heading);
      if (!heading.textContent.trim()) say("an empty heading", heading);
      level = now;
    }
  }

  function names() {
    all(CONTROLS).filter(seen).filter((element) => !element.matches("main") && !name(element)).forEach((element) => say("no name", element));
    all("img:not([alt])").forEach((element) => say("no alt", element));
    all("svg").filter((svg) => svg.getAttribute("aria-hidden") !== "true" && !svg.closest("[aria-hidden=true]"))
      .filter((svg) => !["img", "group"].includes(svg.getAttribute("role")) || !(svg.getAttribute("aria-label") || svg.querySelector("title")?.textContent))
      .forEach((svg) => say("a picture that is neither named nor hidden", svg));
    all("input:not([type=hidden]), select, textarea").filter(seen)
      .filter((element) => !element.labels.length && !element.getAttribute("aria-label") && !element.getAttribute("aria-labelledby"))
      .forEach((element) => say("no label", element));
    all("th:not([scope])").forEach((element) => say("a table heading without scope", element));
    all("table").filter(seen).filter((table) => !table.querySelector("th")).forEach((table) => say("a table without headings", table));
    all("[aria-hidden=true]").filter((element) => element.querySelector(CONTROLS)).forEach((element) => say("hidden, but can be reached", element));
    all("[tabindex]").filter((element) => element.tabIndex > 0).forEach((element) => say("a tabindex that changes the order", element));
  }

  function references() {
    const ids = all("[id]").map((element) => element.id);
    ids.filter((id, at) => ids.indexOf(id) !== at).forEach((id) => say(`the id ${id} is there twice`));
    for (const attribute of ["aria-describedby", "aria-labelledby", "aria-controls", "for"]) {
      for (const element of all(`[${attribute}]`)) {
        const lost = element.getAttribute(attribute).split(/\s+/).filter((id) => id && !document.getElementById(id));
        if (lost.length) say(`${attribute} leads nowhere`, element);
      }
    }
    const roles = new Set("alert button dialog group img link list listitem log meter navigation none note presentation progressbar region row search status tab tablist tabpanel table tooltip grid gridcell rowheader columnheader rowgroup cell switch checkbox menu menuitem".split(" "));
    all("[role]").filter((element) => !roles.has(element.getAttribute("role"))).forEach((element) => say("an unknown role", element));
  }

  const numbers = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const over = ([r, g, b, a = 1], below) => [r, g, b].map((part, at) => part * a + below[at] * (1 - a));
  function ground(element) {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      layers.push(colour);
      if (colour.length < 4 || colour[3] > 0.99) break;
    }
    const paper = matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0] : [255, 255, 255];
    return layers.reverse().reduce((below, colour) => over(colour, below), paper);
  }
  function luminance(colour) {
    const [r, g, b] = colour.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function contrasts() {
    for (const element of all("body *")) {
      const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.nodeValue.trim());
      if (!says || !seen(element) || element.closest("svg, option, :disabled")) continue;
      const style = getComputedStyle(element);
      const below = ground(element);
      const [light, dark] = [luminance(over(numbers(style.color), below)), luminance(below)].sort((a, b) => b - a);
      const size = parseFloat(style.fontSize);
      const ratio = (light + 0.05) / (dark + 0.05);
      if (ratio < (size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5)) say(`contrast ${ratio.toFixed(2)}`, element);
    }
  }

  function sizes() {
    if (document.documentElement.scrollWidth > innerWidth) say("the page is wider than the window");
    if (!options.touch) return;
    const boxes = all(CONTROLS).filter(isTarget).map((element) => [element, (element.closest("label") ?? element).getBoundingClientRect()]);
    const middle = (box) => [box.x + box.width / 2, box.y + box.height / 2];
    for (const [element, box] of boxes) {
      const isInText = element.matches("a") && getComputedStyle(element).display === "inline";
      if (isInText || (box.width >= 24 && box.height >= 24) || !box.width) continue;
      const [x, y] = middle(box);
      const isNear = (other) => Math.hypot(x - Math.max(other.left, Math.min(x, other.right)), y - Math.max(other.top, Math.min(y, other.bottom))) < 12;
      const close = boxes.find(([other, near]) => other !== element && !other.contains(element) && !element.contains(other) && near.width && isNear(near));
      if (close) say(`a target of ${box.width.toFixed(0)} by ${box.height.toFixed(0)} pixels beside another`, element);
    }
  }

  function focus() {
    const looks = (element) => {
      const style = getComputedStyle(element);
      return [style.outlineStyle, style.outlineWidth, style.outlineColor, style.boxShadow, style.borderColor, style.backgroundColor].join();
    };
    for (const element of all(CONTROLS).filter(isTarget).slice(0, 60)) {
      document.activeElement?.blur();
      const before = looks(element);
      element.focus({ preventScroll: true, focusVisible: true });
      const after = looks(element);
      if (document.activeElement === element && before === after) say("focus cannot be seen", element);
    }
    document.activeElement?.blur();
  }

  for (const check of [document_, headings, names, references, contrasts, sizes, focus]) check();
  return faults;
}
