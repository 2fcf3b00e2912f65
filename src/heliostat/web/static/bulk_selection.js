// Forms with many boxes to tick: a box for all of them, and a button that says how many.
export function startBulk() {
  for (const form of document.querySelectorAll("form[data-bulk]")) {
    form.addEventListener("change", (event) => {
      if (event.target.matches("[data-all]")) for (const box of boxes(form)) box.checked = event.target.checked;
      update(form);
    });
    document.addEventListener("helio:refreshed", () => update(form));
    window.addEventListener("pageshow", () => update(form));
    update(form);
  }
}

function update(form) {
  const all = boxes(form);
  const ticked = all.filter((box) => box.checked).length;
  const every = form.querySelector("[data-all]");
  if (every) {
    every.hidden = all.length === 0;
    every.checked = ticked > 0 && ticked === all.length;
    every.indeterminate = ticked > 0 && ticked < all.length;
  }
  const button = form.querySelector("[data-bulk-button]");
  if (!button) return;
  button.hidden = ticked === 0;
  const label = button.querySelector("[data-bulk-label]");
  if (ticked) label.textContent = `Cancel ${ticked} ${ticked === 1 ? "job" : "jobs"}`;
}

function boxes(form) {
  return [...form.querySelectorAll("input[type=checkbox][name=job]")];
}
