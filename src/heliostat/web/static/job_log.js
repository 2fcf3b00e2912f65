// Follows what a job prints. The server cleans every line and says when to ask again; nothing is asked while nobody
// looks or once the job is over. A last line without an end is replaced until it has one.
import { refreshNow } from "./live_updates.js";

const MOST_LINES = 5000;
const SLOWEST_SECONDS = 10;
const NEAR = 40;

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
    this.quiet = 1;
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
    this.box.addEventListener("scroll", () => { this.sticks.checked = this.isAtEnd(); });
    this.sticks.addEventListener("change", () => this.sticks.checked && this.toEnd());
    document.addEventListener("visibilitychange", () => this.look());
    document.addEventListener("helio:refreshed", () => this.look());
    this.ask();
  }

  get sticks() {
    return this.follow.querySelector("input");
  }

  look() {
    if (document.hidden || this.ended) return;
    this.quiet = 1;
    this.plan(0.2);
  }

  plan(seconds) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), 1000 * seconds);
  }

  async ask() {
    if (document.hidden || this.busy) return;
    this.busy = true;
    let rest = SLOWEST_SECONDS;
    try {
      rest = await this.load();
    } catch {
      // the server is away: ask again later
    } finally {
      this.busy = false;
    }
    if (this.ended) this.follow.hidden = true;
    else this.plan(rest);
  }

  async load() {
    const query = new URLSearchParams({ stream: this.section.dataset.stream, ...this.at });
    if (this.attempt) query.set("attempt", this.attempt);
    const address = `${this.section.dataset.log}?${query}`;
    const answer = await fetch(address, { headers: { "X-Fragment": "log" }, redirect: "error" });
    if (answer.status === 401 || answer.status === 403) this.ended = true;
    if (!answer.ok) return SLOWEST_SECONDS;
    const told = await answer.json();
    const isFirst = this.attempt === 0 && told.attempt > 0;
    if (isFirst) this.begin(told.attempt); // nothing ran yet when the page was made
    const isNew = this.show(told);
    if (isFirst || told.state !== this.section.dataset.state || told.newest > this.attempt) {
      this.section.dataset.state = told.state; // the rest of the page may have missed it
      refreshNow();
    }
    if (told.newest > this.attempt) {
      this.next(told.newest);
      return 0.1;
    }
    this.ended = told.over && !isNew;
    this.quiet = isNew ? 1 : Math.min(this.quiet * 1.5, SLOWEST_SECONDS);
    return Math.max(told.rest_seconds, this.quiet);
  }

  show(told) {
    for (const old of this.box.querySelectorAll("[data-open]")) old.remove();
    if (told.skipped) this.add(note(`… ${told.skipped.toLocaleString()} bytes are not shown here`));
    for (const line of told.lines) this.add(made(line));
    for (const line of told.open) this.add(made(line), true);
    const isNew = told.lines.length > 0 || JSON.stringify(told.open) !== this.open;
    this.open = JSON.stringify(told.open);
    this.at = told.following;
    const lines = this.box.querySelectorAll(".ln");
    for (let count = 0; count < lines.length - MOST_LINES; count += 1) lines[count].remove();
    this.empty.hidden = lines.length > 0;
    if (isNew) this.applyFilter();
    if (isNew && this.sticks.checked) this.toEnd();
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
    return this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < NEAR;
  }

  toEnd() {
    this.box.scrollTop = this.box.scrollHeight;
  }

  applyFilter() {
    const wanted = this.filter.value.trim().toLowerCase();
    let shown = 0;
    for (const line of this.box.querySelectorAll(".ln")) {
      const fits = !wanted || line.textContent.toLowerCase().includes(wanted);
      line.classList.toggle("away", !fits);
      shown += fits;
    }
    this.filtered.hidden = !wanted;
    this.filtered.textContent = `${shown} of the lines below fit; Enter looks through all of it`;
  }
}

function made({ stream, runs }) {
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
