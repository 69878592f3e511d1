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

SCRIPT = f"\n{{{_SORTED}{_CHOSEN}{_POINTED}{_CLOSER}}}\n"  # in a block, so that a further script may use the same names
