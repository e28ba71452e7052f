// Elements from plain values. Text is only ever set as text: names, keys and bodies come from anywhere.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const TONES = {
  running: "well", standby: "well",
  starting: "warn", blocked: "warn", unknown: "warn", lagging: "warn",
  paused: "held", draining: "held", drained: "held", quiescing: "held", quiesced: "held",
};
export const tone = (state) => TONES[state] ?? "bad";
const BADNESS = { well: 0, held: 1, warn: 2, bad: 3 };
export function worst(states) {
  return states.reduce((one, other) => (BADNESS[tone(other)] > BADNESS[tone(one)] ? other : one), "running");
}

export const state = (word) => h("span", { class: `state ${tone(word)}` }, word);

export function number(value, digits = 0) {
  if (value == null || value < 0) return "?";
  return value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: 0 });
}

export function bytes(value) {
  if (value == null || value < 0) return "?";
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (value >= size) return `${number(value / size, 1)} ${unit}`;
  }
  return `${number(value)} B`;
}

export function duration(seconds) {
  if (seconds == null) return "?";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= size) return `${number(seconds / size, 1)} ${unit}`;
  }
  return `${number(seconds, seconds < 10 ? 1 : 0)} s`;
}

export const clock = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ") + " UTC";

// headings: [text, isFigure]; rows of arrays of text or elements, the first of which heads its row. `isNamed`: a heading above has
// the caption already.
export function table(caption, headings, rows, { stacked = true, isNamed = false, empty = "none" } = {}) {
  const head = headings.map(([text, isFigure]) => h("th", { scope: "col", class: isFigure ? "figure" : null }, text));
  const body = rows.map((cells) => row(headings, cells));
  if (!rows.length) body.push(h("tr", {}, h("td", { colspan: headings.length, class: "quiet" }, empty)));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { class: stacked ? "stacked" : null },
      h("caption", { class: isNamed ? "hidden" : null }, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export function row(headings, cells) {
  return h("tr", {}, cells.map((cell, n) => {
    const [text, isFigure, css] = headings[n];
    const classes = [isFigure ? "figure" : "", css ?? "", cell === "-" || cell === "" ? "none" : ""].join(" ").trim();
    return h(n ? "td" : "th", { scope: n ? null : "row", "data-heading": text, class: classes || null }, cell ?? "");
  }));
}

export const problem = (text) => h("p", { class: "problem", role: "alert" }, text);
