// The map of GPUs: says in a box of its own who is on the one that is pointed at or focused, and moves by arrow keys.
import { refreshNow } from "./live_updates.js";

const REFRESH_MS = 20000; // what is used changes without anybody being told

const box = document.querySelector("[data-details]");
let shown = null;

document.documentElement.classList.add("has-details");
document.addEventListener("pointerover", (event) => tell(cellOf(event.target), event.target));
document.addEventListener("focusin", (event) => tell(cellOf(event.target)));
document.addEventListener("focusout", (event) => cellOf(event.relatedTarget) || forget());
document.addEventListener("keydown", (event) => {
  const cell = cellOf(event.target);
  if (cell) move(event, cell);
});
document.addEventListener("helio:refreshed", () => {
  if (!shown) return;
  if (shown.isConnected) write(shown);
  else forget();
});
setInterval(() => document.hidden || refreshNow(), REFRESH_MS);

function cellOf(target) {
  return target instanceof Element ? target.closest("[data-heat] a.cell") : null;
}

// Outside the map it goes back to what has the focus; over the box itself it stays.
function tell(cell, pointed = null) {
  const next = cell ?? (pointed && box.contains(pointed) ? shown : cellOf(document.activeElement));
  if (next === shown) return;
  if (!next) {
    forget();
    return;
  }
  shown = next;
  write(next);
}

function write(cell) {
  box.hidden = false;
  const lines = cell.getAttribute("aria-label").split("\n");
  box.replaceChildren(
    ...lines.map((line) => {
      const paragraph = document.createElement("p");
      paragraph.textContent = line;
      return paragraph;
    }),
  );
}

function forget() {
  shown = null;
  box.hidden = true;
}

function move(event, cell) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "Escape") {
    forget();
    return;
  }
  const cells = [...document.querySelectorAll("[data-heat] a.cell")];
  const next = target(event.key, cells, cells.indexOf(cell));
  if (!next) return;
  event.preventDefault();
  next.focus();
}

function target(key, cells, at) {
  switch (key) {
    case "ArrowRight":
      return cells[at + 1];
    case "ArrowLeft":
      return cells[at - 1];
    case "Home":
      return cells[0];
    case "End":
      return cells[cells.length - 1];
    case "ArrowDown":
      return nearest(cells, cells[at], 1);
    case "ArrowUp":
      return nearest(cells, cells[at], -1);
  }
  return null;
}

// The one in the next row, above or below, that is least to the side.
function nearest(cells, from, direction) {
  const here = from.getBoundingClientRect();
  let best = null;
  let least = Infinity;
  for (const cell of cells) {
    const there = cell.getBoundingClientRect();
    const down = (there.top - here.top) * direction;
    if (down < here.height / 2) continue;
    const far = down * 4 + Math.abs(there.left - here.left);
    if (far < least) [best, least] = [cell, far];
  }
  return best;
}
