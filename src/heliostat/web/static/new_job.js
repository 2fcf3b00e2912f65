// The form of a job: says what would come of it while one types. Without this, buttons do the same.
import { morphChildren } from "./dom_morph.js";
import { localise } from "./local_times.js";

const PAUSE = 500;
const BUSY = 3000;

class AddJob {
  constructor(form) {
    this.form = form;
    this.asked = null; // what the last forecast was about
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
    this.soon(0);
  }

  // What was wrong with the old text says nothing of the new one.
  typed(field) {
    field.removeAttribute("aria-invalid");
    field.closest(".field-wrong")?.querySelector(".error")?.remove();
    field.closest(".field-wrong")?.classList.remove("field-wrong");
    if (field.name !== "import") this.soon(PAUSE);
  }

  soon(wait) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), wait);
  }

  // One question at a time, and a forecast only when something has changed that it depends on.
  async refresh() {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    const subject = this.subject();
    const parts = subject === this.asked ? ["elsewhere"] : ["preview", "elsewhere"];
    this.mark(parts, true);
    try {
      await this.show(parts);
      this.asked = subject;
      if (this.form.querySelector("[data-busy]")) {
        this.asked = null;
        this.soon(BUSY);
      }
    } catch {
      this.asked = null; // no answer: the next change asks again
    } finally {
      this.mark(parts, false);
      this.busy = false;
      if (this.again) {
        this.again = false;
        this.soon(PAUSE);
      }
    }
  }

  async show(parts) {
    const sent = new URLSearchParams(new FormData(this.form));
    sent.delete("import");
    sent.set("do", parts.includes("preview") ? "preview" : "export");
    const answer = await fetch(this.form.action, {
      method: "POST", body: sent, headers: { "X-Fragment": parts.join(",") }, redirect: "error",
    });
    if (!answer.ok) throw new Error(String(answer.status));
    const holder = document.createElement("template");
    holder.innerHTML = await answer.text();
    for (const name of parts) {
      const fresh = holder.content.querySelector(`template[data-part="${name}"]`);
      if (fresh) morphChildren(this.form.querySelector(`[data-shown="${name}"]`), fresh.content);
    }
    this.hideButtons();
    localise(this.form);
  }

  subject() {
    const fields = [...this.form.querySelectorAll("[data-foreseen]")];
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
    this.soon(0);
  }

  async load(input) {
    const [file] = input.files;
    if (!file) return;
    this.form.elements.namedItem("import").value = await file.text();
    this.form.querySelector("[data-import]").click();
  }

  // A second click while the first is on its way does nothing; the key in the form makes sure of it.
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
