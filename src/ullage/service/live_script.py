"""The script of the service's pages: they hear what is new (`live`), and one sends profiles (`uploads`). Their policy names it by hash."""

from __future__ import annotations

# What a page of the service does with it: no word becomes markup.
_EVENTS_SCRIPT = """
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

# The box is made by the script, for without it nothing could be sent.
_UPLOAD_SCRIPT = """
const profile = document.querySelector("header[data-upload]");
if (profile) {
  const place = document.querySelector("#profile"), box = document.createElement("input"), said = document.createElement("p");
  const label = document.createElement("label"), tools = document.createElement("div");
  box.type = "file";
  tools.className = "tools";
  label.append("Profile", box);
  tools.append(label);
  said.setAttribute("role", "status");
  (place.parentNode.querySelector(".how") || place).after(tools, said);
  let busy = false;
  const send = async file => {
    if (busy || !file) return;
    if (file.size > +profile.dataset.upload) { said.textContent = "This file is too large to be sent."; return; }
    busy = true;
    said.textContent = `${file.name} is being sent and read …`;
    try {
      const answer = await fetch("/api/v1/uploads", {method: "POST", body: file, headers: {"Content-Type": "application/octet-stream"}});
      const found = await answer.json();
      if (answer.ok) { location.href = found.page; return; }
      said.textContent = [found.error.problem, found.error.hint].filter(Boolean).join(": ");
    } catch (_) {
      said.textContent = "The file could not be sent.";
    }
    busy = false;
  };
  box.addEventListener("change", () => send(box.files[0]));
  addEventListener("dragover", event => event.preventDefault());
  addEventListener("drop", event => { event.preventDefault(); send(event.dataTransfer.files[0]); });
}
"""

LIVE_SCRIPT = _EVENTS_SCRIPT + _UPLOAD_SCRIPT
