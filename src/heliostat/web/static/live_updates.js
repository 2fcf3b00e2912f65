// Live updates: an event stream reports changes, and the page then requests its fragments (data-live="name") again.
// A banner says when the server does not respond. Nothing is requested while the page is hidden.
import { morphChildren } from "./dom_morph.js";

const MAX_WAIT_MS = 15000;
const MAX_SILENCE_MS = 50000; // the server sends something every 20 s
const MAX_PROBE_MS = 10000;

export function startLive(refreshed) {
  const address = document.body.dataset.liveUrl;
  if (!address) return;
  new Live(address, refreshed).start();
}

// For scripts that need the current state immediately.
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
    this.known = null; // fingerprint of the shown fragments
    this.shown = null;
    this.silence = null; // timer
  }

  start() {
    document.addEventListener("visibilitychange", () => this.update());
    document.addEventListener("helio:refresh", () => this.refresh("reload"));
    window.addEventListener("pagehide", () => this.close());
    window.addEventListener("pageshow", (event) => event.persisted && this.update());
    this.update();
  }

  update() {
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
      this.showState("on", "live");
      this.showLoss(false);
      this.expectSigns();
      if (this.stale) this.refresh();
    });
    this.source.addEventListener("alive", () => this.expectSigns());
    this.source.addEventListener("change", () => {
      this.expectSigns();
      this.refresh();
    });
    this.source.addEventListener("over", (event) => this.end(event.data));
    this.source.addEventListener("error", () => this.retry());
  }

  // A server that lost its power or its network closes no connection.
  expectSigns() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.retry(), MAX_SILENCE_MS);
  }

  close() {
    clearTimeout(this.silence);
    this.source?.close();
    this.source = null;
    this.showState("off", "paused");
  }

  async retry() {
    this.close();
    this.stale = true;
    this.showState("off", "reconnecting");
    const status = await this.probe();
    if (this.source) return; // connected meanwhile
    if (status === 401) return this.end("login");
    if (status === 0 || status >= 500) this.showLoss(true);
    setTimeout(() => this.update(), this.wait * (0.75 + Math.random() / 2));
    this.wait = Math.min(this.wait * 2, MAX_WAIT_MS);
  }

  // The HTTP status, which an EventSource does not tell; 0 without a response.
  async probe() {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), MAX_PROBE_MS);
    try {
      return (await fetch(this.address, { signal: stop.signal })).status;
    } catch {
      return 0;
    } finally {
      clearTimeout(timer);
      stop.abort();
    }
  }

  end(reason) {
    this.close();
    this.showLoss(false);
    const isLive = document.querySelector("[data-live]") !== null; // another page may hold a form
    if (reason === "login" && isLive) location.reload();
    else this.showState("off", "not live: too many pages are open");
  }

  // cache "reload": the current state, not a cached one
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
      this.stale = true; // the event stream reconnects and refreshes
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
    const response = await fetch(location.href, { headers, cache, redirect: "error" });
    if (response.status === 401) location.reload();
    if (!response.ok || response.status === 204) return; // 204: no changes
    this.known = response.headers.get("X-Known");
    this.shown = shown;
    const holder = document.createElement("template");
    holder.innerHTML = await response.text();
    for (const part of parts) {
      const fresh = holder.content.querySelector(`template[data-part="${CSS.escape(part.dataset.live)}"]`);
      if (fresh) morphChildren(part, fresh.content);
    }
    this.refreshed();
  }

  showLoss(isLost) {
    document.querySelector("[data-server-lost]").hidden = !isLost;
  }

  showState(state, text) {
    const element = document.querySelector("[data-live-state]");
    if (!element) return;
    element.dataset.liveState = state;
    element.querySelector(".live-text").textContent = text;
  }
}
