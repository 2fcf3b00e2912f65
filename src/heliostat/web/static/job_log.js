// Follows the log of a job. The server sanitizes each line and sets the poll interval; nothing is requested while
// the page is hidden or after the job has ended. An incomplete last line is replaced until it is complete.
import { refreshNow } from "./live_updates.js";

const MAX_LINES = 5000;
const MAX_POLL_SECONDS = 10;
const END_TOLERANCE_PX = 40;

export function startLog(section) {
  new Log(section).start();
}

class Log {
  constructor(section) {
    this.section = section;
    this.box = section.querySelector("[data-log-lines]");
    this.empty = section.querySelector("[data-log-empty]");
    this.filter = section.querySelector("[data-log-filter]");
    this.filtered = section.querySelector("[data-log-filtered]");
    this.follow = section.querySelector("[data-log-follow]");
    this.attempt = Number(section.dataset.attempt);
    this.at = { stdout: Number(section.dataset.stdout), stderr: Number(section.dataset.stderr) };
    this.idleSeconds = 1;
    this.busy = false;
    this.timer = null;
    this.ended = !("follows" in section.dataset);
  }

  start() {
    this.filter.addEventListener("input", () => this.applyFilter());
    if (this.filter.value) this.applyFilter();
    if (!new URLSearchParams(location.search).has("at")) this.box.scrollTop = this.box.scrollHeight;
    if (this.ended) return;
    this.follow.hidden = false;
    this.box.addEventListener("scroll", () => { this.followBox.checked = this.isAtEnd(); });
    this.followBox.addEventListener("change", () => this.followBox.checked && this.toEnd());
    document.addEventListener("visibilitychange", () => this.pollSoon());
    document.addEventListener("helio:refreshed", () => this.pollSoon());
    this.poll();
  }

  get followBox() {
    return this.follow.querySelector("input");
  }

  pollSoon() {
    if (document.hidden || this.ended) return;
    this.idleSeconds = 1;
    this.schedule(0.2);
  }

  schedule(seconds) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.poll(), 1000 * seconds);
  }

  async poll() {
    if (document.hidden || this.busy) return;
    this.busy = true;
    let delay = MAX_POLL_SECONDS;
    try {
      delay = await this.load();
    } catch {
      // the server is unavailable: try again later
    } finally {
      this.busy = false;
    }
    if (this.ended) this.follow.hidden = true;
    else this.schedule(delay);
  }

  async load() {
    const query = new URLSearchParams({ stream: this.section.dataset.stream, ...this.at });
    if (this.attempt) query.set("attempt", this.attempt);
    const address = `${this.section.dataset.log}?${query}`;
    const response = await fetch(address, { headers: { "X-Fragment": "log" }, redirect: "error" });
    if (response.status === 401 || response.status === 403) this.ended = true;
    if (!response.ok) return MAX_POLL_SECONDS;
    const update = await response.json();
    const isFirst = this.attempt === 0 && update.attempt > 0;
    if (isFirst) this.begin(update.attempt); // the job had not started when the page was rendered
    const isNew = this.show(update);
    if (isFirst || update.state !== this.section.dataset.state || update.newest > this.attempt) {
      this.section.dataset.state = update.state; // the rest of the page may not have noticed
      refreshNow();
    }
    if (update.newest > this.attempt) {
      this.next(update.newest);
      return 0.1;
    }
    this.ended = update.over && !isNew;
    this.idleSeconds = isNew ? 1 : Math.min(this.idleSeconds * 1.5, MAX_POLL_SECONDS);
    return Math.max(update.rest_seconds, this.idleSeconds);
  }

  show(update) {
    for (const old of this.box.querySelectorAll("[data-open]")) old.remove();
    if (update.skipped) this.add(note(`… ${update.skipped.toLocaleString()} bytes not shown`));
    for (const line of update.lines) this.add(renderLine(line));
    for (const line of update.open) this.add(renderLine(line), true);
    const isNew = update.lines.length > 0 || JSON.stringify(update.open) !== this.open;
    this.open = JSON.stringify(update.open);
    this.at = update.following;
    const lines = this.box.querySelectorAll(".ln");
    for (let count = 0; count < lines.length - MAX_LINES; count += 1) lines[count].remove();
    this.empty.hidden = lines.length > 0;
    if (isNew) this.applyFilter();
    if (isNew && this.followBox.checked) this.toEnd();
    return isNew;
  }

  begin(attempt) {
    this.attempt = attempt;
    this.section.classList.remove("log-idle");
  }

  next(attempt) {
    this.add(note(`attempt ${attempt}`));
    this.at = { stdout: 0, stderr: 0 };
    this.begin(attempt);
  }

  add(line, isOpen = false) {
    if (isOpen) line.dataset.open = "";
    this.box.insertBefore(line, this.empty);
  }

  isAtEnd() {
    return this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < END_TOLERANCE_PX;
  }

  toEnd() {
    this.box.scrollTop = this.box.scrollHeight;
  }

  applyFilter() {
    const filter = this.filter.value.trim().toLowerCase();
    let shown = 0;
    for (const line of this.box.querySelectorAll(".ln")) {
      const matches = !filter || line.textContent.toLowerCase().includes(filter);
      line.classList.toggle("away", !matches);
      shown += matches;
    }
    this.filtered.hidden = !filter;
    this.filtered.textContent = `${shown} of the lines below match. Press Enter to search the whole log.`;
  }
}

function renderLine({ stream, runs }) {
  const line = document.createElement("div");
  line.className = stream === "stderr" ? "ln err" : "ln";
  for (const [classes, text] of runs) {
    if (!classes) {
      line.append(text);
      continue;
    }
    const piece = document.createElement("span");
    piece.className = classes;
    piece.textContent = text;
    line.append(piece);
  }
  return line;
}

function note(text) {
  const line = document.createElement("div");
  line.className = "ln break";
  line.textContent = text;
  return line;
}
