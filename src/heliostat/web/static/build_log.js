// The log of a build grows on the page while it is built. What is there already came with the page.

const LEAST_MS = 1000;

async function grow() {
  const log = document.querySelector("[data-growing]");
  if (!log || log.dataset.whole !== undefined) return;
  let rest = LEAST_MS;
  if (!document.hidden) {
    const from = log.dataset.offset;
    try {
      const answer = await fetch(`${log.dataset.growing}?offset=${from}`);
      if (!answer.ok) return;
      const more = await answer.json();
      // The page may have brought a newer state of it meanwhile.
      if (log.dataset.offset === from && more.text) {
        const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
        log.append(more.text);
        log.dataset.offset = more.offset;
        if (atEnd) log.scrollTop = log.scrollHeight;
      }
      if (!more.grows) return;
      rest = Math.max(LEAST_MS, more.rest_seconds * 1000);
    } catch {
      rest = 5 * LEAST_MS; // the server is away for a moment
    }
  }
  setTimeout(grow, rest);
}

grow();
