// Build log: polls for new text while the build is running.

const MIN_POLL_MS = 1000;

async function poll() {
  const log = document.querySelector("[data-growing]");
  if (!log || log.dataset.whole !== undefined) return;
  let delay = MIN_POLL_MS;
  if (!document.hidden) {
    const from = log.dataset.offset;
    try {
      const response = await fetch(`${log.dataset.growing}?offset=${from}`);
      if (!response.ok) return;
      const more = await response.json();
      // A live update may have replaced the log meanwhile.
      if (log.dataset.offset === from && more.text) {
        const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
        log.append(more.text);
        log.dataset.offset = more.offset;
        if (atEnd) log.scrollTop = log.scrollHeight;
      }
      if (!more.grows) return;
      delay = Math.max(MIN_POLL_MS, more.rest_seconds * 1000);
    } catch {
      delay = 5 * MIN_POLL_MS; // the server is unavailable
    }
  }
  setTimeout(poll, delay);
}

poll();
