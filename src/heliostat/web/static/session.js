// Session page: polls until the server of the session is up, then opens it.
import { refreshNow } from "./live_updates.js";

if (!document.querySelector("[data-goto]")) {
  document.addEventListener("helio:refreshed", openSession);
  setInterval(() => {
    if (!document.hidden && document.querySelector("[data-every]")) refreshNow();
  }, 2000);
}

function openSession() {
  const link = document.querySelector("[data-goto]");
  if (link) location.assign(link.href);
}
