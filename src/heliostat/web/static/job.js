// The page of a job: asks for its parts anew while the job is under way, and follows its log.
import { refreshNow } from "./live_updates.js";
import { startLog } from "./job_log.js";

// What is measured, and the place in the queue, change without anything happening to the job itself.
let last = Date.now();
setInterval(() => {
  const every = document.querySelector("[data-every]")?.dataset.every;
  if (!every || document.hidden || Date.now() - last < 1000 * Number(every)) return;
  last = Date.now();
  refreshNow();
}, 1000);
document.addEventListener("helio:refreshed", () => { last = Date.now(); });

// What happened between the page and its stream.
if (document.querySelector("[data-every]")) setTimeout(refreshNow, 2000);

const log = document.querySelector("[data-log]");
if (log?.querySelector("[data-log-lines]")) startLog(log);
