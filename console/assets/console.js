// The pages work without this. It reads a page again when the server says that there is news, and puts in what has changed.
"use strict";

const body = document.body;
const pulse = document.getElementById("pulse");
const between = 1000; // ms from one reading to the next
let last = 0, timer = 0, reading = false, again = false;

function soon() {
  again = reading; // what is being read may be older than the news
  if (!timer && !reading && body.dataset.live) {
    timer = setTimeout(read, Math.max(0, last + between - Date.now()));
  }
}

async function read() {
  timer = 0;
  if (document.hidden) {
    return; // visibilitychange asks again
  }
  reading = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.ok && "failed" in body.dataset) {
      location.reload();
    } else if (answer.ok) {
      put(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
  } catch {
    // the server is away; its stream of events says when it is back
  }
  reading = false;
  last = Date.now();
  if (again || body.dataset.live === "busy") {
    soon();
  }
}

// put replaces the parts that are marked, except those that somebody is busy with.
function put(page) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const next = page.getElementById(part.id);
    const selection = getSelection();
    const busy = part.contains(document.activeElement) || part.querySelector("input:checked") ||
      (!selection.isCollapsed && selection.containsNode(part, true));
    if (next && !busy && !part.isEqualNode(next)) {
      part.replaceWith(document.adoptNode(next));
    }
  }
  body.dataset.live = page.body.dataset.live;
}

if (body.dataset.live) {
  const events = new EventSource(body.dataset.events);
  events.onopen = () => { pulse.hidden = false; pulse.classList.remove("off"); pulse.textContent = "live"; };
  events.onerror = () => { pulse.classList.add("off"); pulse.textContent = "not live"; };
  events.onmessage = soon;
  document.addEventListener("visibilitychange", () => { if (!document.hidden) { soon(); } });
  addEventListener("pagehide", () => events.close());
  addEventListener("pageshow", (e) => { if (e.persisted) { location.reload(); } });
  if (body.dataset.live === "busy") {
    soon();
  }
}

// "/" goes to the search.
document.addEventListener("keydown", (e) => {
  if (e.key === "/" && !e.ctrlKey && !e.metaKey && !e.altKey && !e.target.closest("input, textarea, select")) {
    const field = document.querySelector("[data-search]");
    if (field) {
      e.preventDefault();
      field.focus();
    }
  }
});
