// Menus: close on a click outside or on Escape. A narrow navigation is scrolled to the current page.
export function startMenus() {
  const current = document.querySelector(".nav [aria-current]");
  const nav = current?.closest(".nav");
  if (nav) nav.scrollLeft = current.offsetLeft - nav.offsetLeft - (nav.clientWidth - current.offsetWidth) / 2;
  document.addEventListener("click", (event) => close((menu) => !menu.contains(event.target)));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close(() => true);
  });
}

function close(which) {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (which(menu)) menu.open = false;
}
