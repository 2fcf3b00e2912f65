// Job form: updates the start preview while typing. Without JavaScript, buttons do the same.
import { morphChildren } from "./dom_morph.js";
import { localise } from "./local_times.js";

const TYPING_PAUSE_MS = 500;
const BUSY_RETRY_MS = 3000;

class AddJob {
  constructor(form) {
    this.form = form;
    this.forecastInput = null; // input of the last forecast
    this.busy = false;
    this.again = false;
    this.timer = 0;
  }

  start() {
    for (const element of this.form.querySelectorAll("[data-needs-script]")) element.hidden = false;
    this.hideButtons();
    this.form.addEventListener("input", (event) => this.typed(event.target));
    this.form.addEventListener("click", (event) => this.apply(event));
    this.form.addEventListener("submit", (event) => this.once(event));
    this.form.querySelector("[data-import-file]").addEventListener("change", (event) => this.load(event.target));
    window.addEventListener("pageshow", () => this.sent(false));
    this.schedule(0);
  }

  // The error of the old value does not apply to the new one.
  typed(field) {
    field.removeAttribute("aria-invalid");
    field.closest(".field-wrong")?.querySelector(".error")?.remove();
    field.closest(".field-wrong")?.classList.remove("field-wrong");
    if (field.name !== "import") this.schedule(TYPING_PAUSE_MS);
  }

  schedule(wait) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), wait);
  }

  // One request at a time; a forecast only after a change of a field that affects the start.
  async refresh() {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    const input = this.input();
    const parts = input === this.forecastInput ? ["elsewhere"] : ["preview", "elsewhere"];
    this.mark(parts, true);
    try {
      await this.show(parts);
      this.forecastInput = input;
      if (this.form.querySelector("[data-busy]")) {
        this.forecastInput = null;
        this.schedule(BUSY_RETRY_MS);
      }
    } catch {
      this.forecastInput = null; // failed: the next change requests it again
    } finally {
      this.mark(parts, false);
      this.busy = false;
      if (this.again) {
        this.again = false;
        this.schedule(TYPING_PAUSE_MS);
      }
    }
  }

  async show(parts) {
    const sent = new URLSearchParams(new FormData(this.form));
    sent.delete("import");
    sent.set("do", parts.includes("preview") ? "preview" : "export");
    const response = await fetch(this.form.action, {
      method: "POST", body: sent, headers: { "X-Fragment": parts.join(",") }, redirect: "error",
    });
    if (!response.ok) throw new Error(String(response.status));
    const holder = document.createElement("template");
    holder.innerHTML = await response.text();
    for (const name of parts) {
      const fresh = holder.content.querySelector(`template[data-part="${name}"]`);
      if (fresh) morphChildren(this.form.querySelector(`[data-shown="${name}"]`), fresh.content);
    }
    this.hideButtons();
    localise(this.form);
  }

  input() {
    const fields = [...this.form.querySelectorAll("[data-affects-start]")];
    return JSON.stringify(fields.map((field) => (field.type === "checkbox" ? field.checked : field.value)));
  }

  mark(parts, stale) {
    for (const name of parts) this.form.querySelector(`[data-shown="${name}"]`).toggleAttribute("data-stale", stale);
  }

  hideButtons() {
    for (const element of this.form.querySelectorAll("[data-scriptless]")) element.hidden = true;
  }

  apply(event) {
    const button = event.target.closest("button[name=apply]");
    if (!button) return;
    event.preventDefault();
    for (const [name, text] of new URLSearchParams(button.value)) {
      const field = this.form.elements.namedItem(name);
      if (!field) continue;
      if (field.type === "checkbox") field.checked = text !== "";
      else field.value = text;
    }
    this.schedule(0);
  }

  async load(input) {
    const [file] = input.files;
    if (!file) return;
    this.form.elements.namedItem("import").value = await file.text();
    this.form.querySelector("[data-import]").click();
  }

  // Ignores a second click; the idempotency key of the form protects in any case.
  once(event) {
    if (event.submitter?.value !== "submit") return;
    if (this.form.dataset.sent) event.preventDefault();
    else this.sent(true);
  }

  sent(yes) {
    if (yes) this.form.dataset.sent = "yes";
    else delete this.form.dataset.sent;
  }
}

const form = document.querySelector("form[data-add-job]");
if (form) new AddJob(form).start();
