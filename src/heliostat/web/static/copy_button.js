// Copy buttons beside commands; hidden if the browser has no clipboard API.
if (navigator.clipboard) {
  show();
  document.addEventListener("helio:refreshed", show);
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-copy]") : null;
    if (!button) return;
    await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

function show() {
  for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
}
