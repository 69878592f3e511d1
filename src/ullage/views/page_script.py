"""The script of an HTML report: inline, and named by hash in its security policy. Without it a page is a still picture."""

from __future__ import annotations

# What pages do that a still picture can't. Ours, and small: a chart library would draw again, and larger, what is drawn already.
# Every table with numbers in `data-v` sorts by a click on its head; the third click brings the report's order back.
_SORTED = """
for (const table of document.querySelectorAll("table.sorts")) {
  const body = table.tBodies[0], first = [...body.rows];
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const words = head.classList.contains("words"), was = head.getAttribute("aria-sort");
      const order = words ? ["ascending", "descending"] : ["descending", "ascending"];
      const now = was === null ? order[0] : was === order[0] ? order[1] : null;
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      if (now) head.setAttribute("aria-sort", now);
      const sign = now === "ascending" ? 1 : -1;
      const value = row => words ? row.cells[at].textContent : row.cells[at].dataset.v;
      const rows = now === null ? first : [...first].sort((a, b) => {
        const x = value(a), y = value(b);
        if (words) return sign * x.localeCompare(y, "en", {numeric: true});
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        return sign * (x - y);
      });
      body.append(...rows);
    });
  });
}
"""

# A long table has a box: rows without each of its words go. A wide one lets columns go; that of the names stays.
_CHOSEN = """
const made = (name, more, ...inside) => {
  const one = Object.assign(document.createElement(name), more);
  if (more.role) one.setAttribute("role", more.role);
  one.append(...inside);
  return one;
};
for (const table of document.querySelectorAll("table.sorts")) {
  const rows = [...table.tBodies[0].rows], heads = [...table.tHead.rows[0].cells], named = table.getAttribute("aria-label");
  const tools = made("div", {className: "tools"});
  if (rows.length > 8) {
    const box = made("input", {type: "search", autocomplete: "off"}), said = made("span", {role: "status"});
    const texts = rows.map(row => row.textContent.toLowerCase());
    box.setAttribute("aria-label", `Rows of ${named} that say`);
    box.addEventListener("input", () => {
      const words = box.value.toLowerCase().split(/\\s+/);
      rows.forEach((row, at) => { row.hidden = !words.every(word => texts[at].includes(word)); });
      said.textContent = box.value.trim() ? `${rows.filter(row => !row.hidden).length} of ${rows.length} rows` : "";
    });
    tools.append(made("label", {}, "Filter", box), said);
  }
  if (heads.length > 5) {
    const choices = heads.slice(1).map((head, before) => {
      const box = made("input", {type: "checkbox", checked: true});
      box.addEventListener("change", () => {
        for (const row of table.rows) row.cells[before + 1].hidden = !box.checked;
      });
      return made("label", {}, box, head.textContent || "–");
    });
    tools.append(made("details", {}, made("summary", {textContent: "Columns"}), made("fieldset", {}, ...choices)));
    tools.querySelector("fieldset").setAttribute("aria-label", `Columns of ${named}`);
  }
  if (tools.hasChildNodes()) table.closest(".scroll").before(tools);
}
"""

# A time course tells the values of a step: where the pointer is, or where its slider is moved to by keys.
_POINTED = """
const drawn = (name, more) => {
  const one = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(more)) one.setAttribute(key, value);
  return one;
};
const across = (svg, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
for (const svg of document.querySelectorAll("svg[data-values]")) {
  const names = svg.dataset.names.split(";");
  const steps = svg.dataset.values.split("|").map(step => {
    const [x, time, ...values] = step.split(";");
    return [x, `${time}: ${names.map((name, at) => `${name} ${values[at]}`).join(", ")}`];
  });
  const [top, bottom] = svg.dataset.plot.split(" "), mark = drawn("line", {class: "s-ink pointer", y1: top, y2: bottom});
  const slider = made("input", {type: "range", min: 0, max: steps.length - 1, value: steps.length - 1}), said = made("output", {});
  const show = at => {
    const [x, words] = steps[at];
    mark.setAttribute("x1", x);
    mark.setAttribute("x2", x);
    svg.append(mark);
    slider.value = at;
    slider.setAttribute("aria-valuetext", words);
    said.textContent = words;
  };
  slider.setAttribute("aria-valuetext", steps.at(-1)[1]);
  slider.addEventListener("input", () => show(+slider.value));
  svg.addEventListener("pointermove", event => {
    const x = across(svg, event);
    show(steps.reduce((best, step, at) => Math.abs(step[0] - x) < Math.abs(steps[best][0] - x) ? at : best, 0));
  });
  svg.after(made("div", {className: "tools"}, made("label", {}, "Values at", slider), said));
}
"""

# A timeline looks closer: at what is dragged over, or by its buttons. Lanes are drawn wider; words keep their shape.
_CLOSER = """
for (const [number, svg] of document.querySelectorAll("svg[data-zoom]").entries()) {
  const [left, right, first, last] = svg.dataset.zoom.split(" ").map(Number), wide = right - left, key = `closer-${number}`;
  const marks = [...svg.querySelectorAll(".along")], texts = marks.flatMap(mark => [...mark.querySelectorAll("text")]);
  const said = made("span", {role: "status"}), height = svg.viewBox.baseVal.height;
  const brush = drawn("rect", {class: "f-ofu pointer", "fill-opacity": 0.2, y: 0, height});
  let from = left, to = right, start = null;
  const clip = drawn("clipPath", {id: key});
  clip.append(drawn("rect", {x: left, y: 0, width: wide, height}));
  svg.append(clip);
  for (const mark of marks) {
    const frame = drawn("g", {"clip-path": `url(#${key})`});
    mark.replaceWith(frame);
    frame.append(mark);
  }
  const moment = x => first + (x - left) / wide * (last - first);
  const words = ns => {
    const near = moment(to) - moment(from), [size, unit] = near > 1e9 ? [1e9, "s"] : near > 1e6 ? [1e6, "ms"] : [1e3, "µs"];
    return `${(ns / size).toLocaleString("en", {maximumFractionDigits: 3})} ${unit}`;
  };
  const look = (a, b) => {
    const size = Math.min(wide, Math.max(b - a, wide / 1000));
    from = Math.min(Math.max(a, left), right - size);
    to = from + size;
    const times = wide / size;
    for (const mark of marks) mark.setAttribute("transform", `translate(${left - from * times} 0) scale(${times} 1)`);
    for (const text of texts) {
      const x = +text.getAttribute("x");
      text.setAttribute("transform", `translate(${x} 0) scale(${1 / times} 1) translate(${-x} 0)`);
    }
    said.textContent = times > 1 ? `${words(moment(from))} to ${words(moment(to))}` : "";
  };
  const by = (name, act) => {
    const one = made("button", {type: "button", textContent: name});
    one.addEventListener("click", act);
    return one;
  };
  const around = share => () => look((from + to) / 2 - (to - from) * share, (from + to) / 2 + (to - from) * share);
  const along = share => () => look(from + (to - from) * share, to + (to - from) * share);
  const tools = made("div", {className: "tools", role: "group"}, by("Closer", around(0.25)), by("Wider", around(1)),
    by("Earlier", along(-0.5)), by("Later", along(0.5)), by("All", () => look(left, right)), said);
  tools.setAttribute("aria-label", "Part of the time shown");
  const inside = event => Math.min(Math.max(across(svg, event), left), right);
  svg.addEventListener("pointerdown", event => {
    if (event.button) return;
    start = inside(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", event => {
    if (start === null) return;
    const x = inside(event);
    brush.setAttribute("x", Math.min(start, x));
    brush.setAttribute("width", Math.abs(start - x));
    svg.append(brush);
  });
  svg.addEventListener("pointercancel", () => { start = null; brush.remove(); });
  svg.addEventListener("pointerup", event => {
    const x = inside(event), size = (to - from) / wide, at = place => from + (place - left) * size;
    brush.remove();
    if (start !== null && Math.abs(x - start) > 4) look(at(Math.min(start, x)), at(Math.max(start, x)));
    start = null;
  });
  svg.addEventListener("dblclick", () => look(left, right));
  svg.after(tools);
}
"""

# A heat map draws its table: a strip a row, a cell a place. Colours are those of the page, which change with the screen and on paper.
_MAPPED = r"""
for (const [number, box] of document.querySelectorAll(".heat").entries()) {
  const table = box.querySelector("table"), places = [...table.tHead.rows[0].cells].slice(1).map(head => head.textContent);
  const hosts = [...table.tBodies[0].rows].map(row => {
    const [head, ...cells] = row.cells, led = head.querySelector("a");
    return {name: head.textContent.trim(), led, cells: cells.map(cell => ({
      there: cell.textContent !== " ", value: cell.dataset.v === undefined ? null : +cell.dataset.v, tip: cell.title}))};
  });
  const deep = places.length, values = hosts.flatMap(host => host.cells.map(cell => cell.value)).filter(value => value !== null);
  if (!hosts.length || !deep) continue;
  const top = Math.max(0.1, Math.ceil(values.reduce((a, b) => Math.max(a, b), 0) * 10) / 10);
  const canvas = made("canvas", {tabIndex: 0, role: "application"});
  const said = made("p", {className: "more", role: "status", id: `heat-${number}`});
  const percent = value => `${Math.round(value * 100)} %`;
  canvas.setAttribute("aria-label", `Map of ${hosts.length} hosts: arrow keys go from GPU to GPU, Enter opens the page of the host`);
  canvas.setAttribute("aria-describedby", said.id);
  said.textContent = "Point at a GPU, or reach the map with Tab and go by the arrow keys.";
  let at = null, size = 22, across = 1, bands = 1;
  const band = () => deep * size + 22, legend = 34;
  const lay = () => {
    const wide = Math.max(box.clientWidth, 100);
    for (size of [22, 18, 15, 12, 10, 8, 6]) {
      across = Math.max(1, Math.floor(wide / size));
      bands = Math.ceil(hosts.length / across);
      if (bands * band() <= 900) break;
    }
    const scale = window.devicePixelRatio || 1, high = bands * band() + legend;
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
    canvas.width = Math.round(wide * scale);
    canvas.height = Math.round(high * scale);
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    return [pen, wide];
  };
  const left = host => host % across * size, above = (host, place) => Math.floor(host / across) * band() + 18 + place * size;
  const draw = () => {
    const [pen, wide] = lay(), style = getComputedStyle(document.documentElement);
    const colour = name => style.getPropertyValue(`--${name}`).trim();
    const parts = name => [1, 3, 5].map(from => parseInt(colour(name).slice(from, from + 2), 16)), low = parts("full"), high = parts("ofu");
    const shade = share => `rgb(${low.map((from, at) => Math.round(from + (high[at] - from) * Math.min(share, 1))).join(" ")})`;
    const edge = size > 8 ? 2 : 1;
    const cell = (x, y, value) => {
      if (value !== null) {
        pen.fillStyle = shade(value / top);
        pen.fillRect(x, y, size - edge, size - edge);
        return;
      }
      pen.strokeStyle = colour("doubt");
      pen.lineWidth = 1;
      pen.strokeRect(x + 0.5, y + 0.5, size - edge - 1, size - edge - 1);
      pen.beginPath();
      pen.moveTo(x + 0.5, y + size - edge - 0.5);
      pen.lineTo(x + size - edge - 0.5, y + 0.5);
      pen.stroke();
    };
    pen.clearRect(0, 0, wide, canvas.height);
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    hosts.forEach((host, row) => {
      if (row % across === 0) {
        pen.fillStyle = colour("muted");
        const last = hosts[Math.min(row + across, hosts.length) - 1].name;
        pen.fillText(last === host.name ? host.name : `${host.name} – ${last}`, 0, above(row, 0) - 5, wide);
      }
      host.cells.forEach((one, place) => { if (one.there) cell(left(row), above(row, place), one.value); });
    });
    const foot = bands * band() + 10;
    let x = 0;
    pen.fillStyle = colour("muted");
    const word = words => { pen.fillStyle = colour("muted"); pen.fillText(words, x, foot + 11); x += pen.measureText(words).width + 8; };
    word("OFU 0 %");
    for (let step = 0; step <= 20; step++, x += 4) { pen.fillStyle = shade(step / 20); pen.fillRect(x, foot, 4, 14); }
    x += 8;
    word(percent(top));
    x += 12;
    cell(x, foot, null);
    x += size + 6;
    word("not known");
    if (at === null) return;
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 2;
    pen.strokeRect(left(at.host) - 1, above(at.host, at.place) - 1, size - edge + 2, size - edge + 2);
  };
  const show = next => {
    const host = hosts[next.host], one = host.cells[next.place];
    at = next;
    const value = one.value === null ? "OFU not known" : `OFU ${percent(one.value)}`;
    said.textContent = `${host.name}, GPU ${places[next.place]}: ${one.there ? [value, one.tip].filter(Boolean).join("; ") : "none"}`;
    canvas.classList.toggle("leads", !!host.led);
    draw();
  };
  const go = () => { if (at && hosts[at.host].led) hosts[at.host].led.click(); };
  const under = event => {
    const edge = canvas.getBoundingClientRect(), x = event.clientX - edge.left, y = event.clientY - edge.top;
    const column = Math.floor(x / size), row = Math.floor(y / band()), place = Math.floor((y - row * band() - 18) / size);
    const host = row * across + column;
    return x >= 0 && column < across && host < hosts.length && place >= 0 && place < deep ? {host, place} : null;
  };
  canvas.addEventListener("pointermove", event => {
    const next = under(event);
    if (next && (!at || next.host !== at.host || next.place !== at.place)) show(next);
  });
  canvas.addEventListener("click", event => { const next = under(event); if (next) { show(next); go(); } });
  canvas.addEventListener("focus", () => { if (!at) show({host: 0, place: 0}); });
  canvas.addEventListener("keydown", event => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const {host, place} = at || {host: 0, place: 0}, last = hosts.length - 1;
    const down = place < deep - 1 ? {host, place: place + 1} : {host: host + across, place: 0};
    const up = place > 0 ? {host, place: place - 1} : {host: host - across, place: deep - 1};
    const steps = {ArrowRight: {host: host + 1, place}, ArrowLeft: {host: host - 1, place}, ArrowDown: down, ArrowUp: up,
      Home: {host: 0, place}, End: {host: last, place}, PageDown: {host: Math.min(host + across, last), place},
      PageUp: {host: Math.max(host - across, 0), place}};
    if (event.key === "Enter") go();
    else if (!steps[event.key]) return;
    else if (steps[event.key].host >= 0 && steps[event.key].host <= last) show(steps[event.key]);
    event.preventDefault();
  });
  box.prepend(canvas, said);
  draw();
  new ResizeObserver(draw).observe(box);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", draw);
}
"""

SCRIPT = f"\n{{{_SORTED}{_CHOSEN}{_POINTED}{_CLOSER}{_MAPPED}}}\n"  # in a block, so that a further script may use the same names
