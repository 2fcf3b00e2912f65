// GPU map: shows details of the cell under the pointer or focus, with arrow-key navigation.
import { refreshNow } from "./live_updates.js";

const REFRESH_MS = 20000; // usage changes without an event

const box = document.querySelector("[data-details]");
let shown = null;

document.documentElement.classList.add("has-details");
document.addEventListener("pointerover", (event) => showDetails(cellOf(event.target), event.target));
document.addEventListener("focusin", (event) => showDetails(cellOf(event.target)));
document.addEventListener("focusout", (event) => cellOf(event.relatedTarget) || hideDetails());
document.addEventListener("keydown", (event) => {
  const cell = cellOf(event.target);
  if (cell) move(event, cell);
});
document.addEventListener("helio:refreshed", () => {
  if (!shown) return;
  if (shown.isConnected) write(shown);
  else hideDetails();
});
setInterval(() => document.hidden || refreshNow(), REFRESH_MS);

function cellOf(target) {
  return target instanceof Element ? target.closest("[data-heat] a.cell") : null;
}

// Outside the map the focused cell is shown; over the details box nothing changes.
function showDetails(cell, pointed = null) {
  const next = cell ?? (pointed && box.contains(pointed) ? shown : cellOf(document.activeElement));
  if (next === shown) return;
  if (!next) {
    hideDetails();
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

function hideDetails() {
  shown = null;
  box.hidden = true;
}

function move(event, cell) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "Escape") {
    hideDetails();
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

// The nearest cell in the row above or below.
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
