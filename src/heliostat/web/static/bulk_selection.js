// Bulk selection: a checkbox for all rows, and a button with the number of selected jobs.
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
  const selected = all.filter((box) => box.checked).length;
  const every = form.querySelector("[data-all]");
  if (every) {
    every.hidden = all.length === 0;
    every.checked = selected > 0 && selected === all.length;
    every.indeterminate = selected > 0 && selected < all.length;
  }
  const button = form.querySelector("[data-bulk-button]");
  if (!button) return;
  button.hidden = selected === 0;
  const label = button.querySelector("[data-bulk-label]");
  if (selected) label.textContent = `Cancel ${selected} ${selected === 1 ? "job" : "jobs"}`;
}

function boxes(form) {
  return [...form.querySelectorAll("input[type=checkbox][name=job]")];
}
