// Scripts of every page. Pages also work without JavaScript.
import { startLive } from "./live_updates.js";
import { localise, tick } from "./local_times.js";
import { startBulk } from "./bulk_selection.js";
import { startMenus } from "./menus.js";

localise(document);
setInterval(() => tick(document), 1000);
startMenus();
startBulk();
startLive(() => {
  localise(document);
  document.dispatchEvent(new CustomEvent("helio:refreshed"));
});
