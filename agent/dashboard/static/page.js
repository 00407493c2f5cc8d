// The live part of the page: after an event the page is fetched again, and its parts with `data-live` are replaced.
// Everything else of the page works without this script.
(() => {
  "use strict";
  const address = document.body.dataset.events;
  const status = document.getElementById("live");
  if (!address || !("EventSource" in window)) return;
  const PAUSE = 2000;
  let due = false, busy = false, last = 0;

  const say = (text) => { if (status && status.textContent !== text) status.textContent = text; };

  // a selector that finds an element again in the fresh part
  function place(element) {
    if (element.id) return "#" + CSS.escape(element.id);
    if (element.tagName === "SUMMARY" && element.parentElement.id) return "#" + CSS.escape(element.parentElement.id) + " > summary";
    for (const name of ["href", "formaction"]) {
      if (element.hasAttribute(name)) return `[${name}="${CSS.escape(element.getAttribute(name))}"]`;
    }
    return "";
  }

  function replace(fresh) {
    for (const part of fresh.querySelectorAll("[data-live][id]")) {
      const old = document.getElementById(part.id);
      if (!old || old.innerHTML === part.innerHTML) continue;
      for (const one of old.querySelectorAll("details[id]")) {
        const same = part.querySelector("#" + CSS.escape(one.id));
        if (same) same.open = one.open;
      }
      if (!getSelection().isCollapsed && old.contains(getSelection().anchorNode)) { due = true; continue; } // somebody copies
      const key = old.contains(document.activeElement) ? place(document.activeElement) : "";
      old.replaceWith(document.adoptNode(part));
      if (key) document.querySelector(key)?.focus({ preventScroll: true });
    }
  }

  async function refresh() {
    if (busy || !due || document.hidden) return;
    const wait = last + PAUSE - Date.now();
    if (wait > 0) { setTimeout(refresh, wait); return; }
    due = false; busy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (answer.ok) {
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
        say("live");
      }
    } catch { say("not live: the page does not answer"); }
    last = Date.now(); busy = false;
    if (due) refresh();
  }

  const source = new EventSource(address);
  // what has changed before the stream was open, or while it was interrupted, gave no event
  source.addEventListener("open", () => { say("live"); due = true; refresh(); });
  source.addEventListener("error", () => say("not live: the page does not answer"));
  source.addEventListener("changed", () => { due = true; refresh(); });
  document.addEventListener("visibilitychange", refresh);
})();
