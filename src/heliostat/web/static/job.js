// Job page: refreshes its fragments while the job is active, and follows the log.
import { refreshNow } from "./live_updates.js";
import { startLog } from "./job_log.js";

// Usage and queue position change without an event of the job.
let last = Date.now();
setInterval(() => {
  const every = document.querySelector("[data-every]")?.dataset.every;
  if (!every || document.hidden || Date.now() - last < 1000 * Number(every)) return;
  last = Date.now();
  refreshNow();
}, 1000);
document.addEventListener("helio:refreshed", () => { last = Date.now(); });

// Catches changes between page load and the start of the event stream.
if (document.querySelector("[data-every]")) setTimeout(refreshNow, 2000);

const log = document.querySelector("[data-log]");
if (log?.querySelector("[data-log-lines]")) startLog(log);
