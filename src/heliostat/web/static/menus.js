// Menus: close on a click outside or on Escape.
export function startMenus() {
  document.addEventListener("click", (event) => close((menu) => !menu.contains(event.target)));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close(() => true);
  });
}

function close(which) {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (which(menu)) menu.open = false;
}
