// Times in the local time zone, relative if recent; the exact time is in the title.
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const sameDay = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const otherDay = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const axis = { time: sameDay, date: new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" }) };
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60]];
const RELATIVE_LIMIT_SECONDS = 7 * 86400;

export function localise(root) {
  for (const element of root.querySelectorAll("time[datetime]")) show(element);
  for (const label of root.querySelectorAll("text[data-at]")) {
    setText(label, axis[label.dataset.form].format(new Date(label.dataset.at)));
  }
  tick(root);
}

export function tick(root) {
  for (const element of root.querySelectorAll("[data-since]")) {
    setText(element, duration((Date.now() - Date.parse(element.dataset.since)) / 1000));
  }
  if (Date.now() % 10000 < 1000) for (const element of root.querySelectorAll("time[datetime]")) show(element);
}

function show(element) {
  const at = new Date(element.getAttribute("datetime"));
  if (Number.isNaN(at.getTime())) return;
  element.title = exact.format(at);
  const seconds = (at.getTime() - Date.now()) / 1000;
  const fixed = "clock" in element.dataset || Math.abs(seconds) > RELATIVE_LIMIT_SECONDS;
  setText(element, fixed ? clock(at) : relativeText(seconds));
}

function clock(at) {
  return (at.toDateString() === new Date().toDateString() ? sameDay : otherDay).format(at);
}

function relativeText(seconds) {
  for (const [unit, size] of UNITS) {
    if (Math.abs(seconds) >= size) return relative.format(Math.round(seconds / size), unit);
  }
  return seconds > 5 ? "in a few seconds" : "just now";
}

// Same format as formatting.format_duration.
export function duration(seconds) {
  const total = Math.max(0, Math.floor(seconds));
  for (const [size, unit, below, rest] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (total < size) continue;
    const more = Math.floor((total % size) / below);
    return `${Math.floor(total / size)} ${unit}` + (more ? ` ${more} ${rest}` : "");
  }
  return `${total} s`;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
