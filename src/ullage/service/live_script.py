"""The script of the service's pages that hear what is new (`live`), named by hash in their security policy."""

from __future__ import annotations

# What a page of the service does with it: no word becomes markup.
LIVE_SCRIPT = """
const site = document.querySelector("header.site[data-version]");
if (site && window.EventSource) {
  const news = new EventSource("/events?page=" + encodeURIComponent(location.pathname + location.search));
  addEventListener("pagehide", () => news.close());
  const words = (selector, text) => { const one = document.querySelector(selector); if (one && text) one.textContent = text; };
  news.addEventListener("state", said => {
    const state = JSON.parse(said.data);
    words(".site .source", state.source);
    const doubts = state.doubts.map(text => {
      const doubt = document.createElement("p");
      doubt.className = "doubt";
      doubt.setAttribute("role", "status");
      doubt.textContent = text;
      return doubt;
    });
    site.querySelectorAll("p.doubt").forEach(one => one.remove());
    site.querySelector("nav").after(...doubts);
  });
  news.addEventListener("headline", said => {
    const state = JSON.parse(said.data), line = document.querySelector("main h1");
    if (!line || state.version === site.dataset.version) return;
    const strong = line.querySelector("strong");
    strong.textContent = state.strong;
    const aside = document.createElement("small");
    aside.textContent = state.aside ? ` (${state.aside})` : "";
    line.replaceChildren(state.before, strong, state.rest, aside);
    words("main .eyebrow", state.eyebrow);
    if (site.querySelector(".newer")) return;
    const newer = document.createElement("p"), link = document.createElement("a");
    newer.className = "newer";
    newer.setAttribute("role", "status");
    link.href = location.href;
    link.textContent = "reload the page";
    newer.append("The headline is new; tables and pictures are older: ", link, ".");
    site.append(newer);
  });
}
"""
