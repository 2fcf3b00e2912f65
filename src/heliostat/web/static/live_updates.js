// Keeps the marked parts of a page (data-live="name") up to date. The server says on one stream that something the
// page shows has changed; the same page is then asked for just these parts. Nothing happens while nobody looks.
import { morphChildren } from "./dom_morph.js";

const LONGEST_WAIT = 60000;

export function startLive(refreshed) {
  const address = document.body.dataset.liveUrl;
  if (!address) return;
  new Live(address, refreshed).start();
}

// For modules that changed something themselves and want to see it.
export function refreshNow() {
  document.dispatchEvent(new CustomEvent("helio:refresh"));
}

class Live {
  constructor(address, refreshed) {
    this.address = address;
    this.refreshed = refreshed;
    this.source = null;
    this.wait = 1000;
    this.busy = false;
    this.again = false;
    this.stale = false;
    this.known = null; // what the server called the parts that are shown
    this.shown = null;
  }

  start() {
    document.addEventListener("visibilitychange", () => this.look());
    document.addEventListener("helio:refresh", () => this.refresh("reload"));
    window.addEventListener("pagehide", () => this.close());
    window.addEventListener("pageshow", (event) => event.persisted && this.look());
    this.look();
  }

  look() {
    if (document.hidden) {
      this.close();
      this.stale = true;
    } else if (this.source === null) {
      this.open();
      if (this.stale) this.refresh();
    }
  }

  open() {
    this.source = new EventSource(this.address);
    this.source.addEventListener("open", () => {
      this.wait = 1000;
      this.tell("on", "live");
      if (this.stale) this.refresh();
    });
    this.source.addEventListener("change", () => this.refresh());
    this.source.addEventListener("over", (event) => this.end(event.data));
    this.source.addEventListener("error", () => this.retry());
  }

  close() {
    this.source?.close();
    this.source = null;
    this.tell("off", "paused");
  }

  retry() {
    this.close();
    this.stale = true;
    this.tell("off", "reconnecting");
    setTimeout(() => this.look(), this.wait * (0.75 + Math.random() / 2));
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
  }

  end(why) {
    this.close();
    if (why === "login") location.reload();
    else this.tell("off", "not live: too many pages are open");
  }

  // cache "reload": as it is now, not as another page saw it a moment ago
  async refresh(cache = "default") {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    try {
      await this.load(cache);
      this.stale = false;
    } catch {
      this.stale = true; // the stream notices as well, and tries again
    } finally {
      this.busy = false;
      if (this.again) {
        this.again = false;
        setTimeout(() => this.refresh(), 1000);
      }
    }
  }

  async load(cache) {
    const parts = [...document.querySelectorAll("[data-live]")];
    if (!parts.length) return;
    const names = parts.map((part) => part.dataset.live).join(",");
    const headers = { "X-Fragment": names };
    const shown = location.href + names;
    if (this.known && this.shown === shown) headers["X-Known"] = this.known;
    const answer = await fetch(location.href, { headers, cache, redirect: "error" });
    if (answer.status === 401) location.reload();
    if (!answer.ok || answer.status === 204) return; // 204: nothing of this has changed
    this.known = answer.headers.get("X-Known");
    this.shown = shown;
    const holder = document.createElement("template");
    holder.innerHTML = await answer.text();
    for (const part of parts) {
      const fresh = holder.content.querySelector(`template[data-part="${CSS.escape(part.dataset.live)}"]`);
      if (fresh) morphChildren(part, fresh.content);
    }
    this.refreshed();
  }

  tell(state, text) {
    const element = document.querySelector("[data-live-state]");
    if (!element) return;
    element.dataset.liveState = state;
    element.querySelector(".live-text").textContent = text;
  }
}
