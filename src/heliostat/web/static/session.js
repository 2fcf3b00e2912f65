// The page of a session: looks now and then whether its server is up, and goes there, if it was not when the page came.
import { refreshNow } from "./live_updates.js";

if (!document.querySelector("[data-goto]")) {
  document.addEventListener("helio:refreshed", goOn);
  setInterval(() => {
    if (!document.hidden && document.querySelector("[data-every]")) refreshNow();
  }, 2000);
}

function goOn() {
  const link = document.querySelector("[data-goto]");
  if (link) location.assign(link.href);
}
