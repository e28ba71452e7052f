// A long table that follows the mesh: only changed rows are made anew, and only so many are shown.

import { h, row, tone } from "./dom.js";
import { follow } from "./live.js";

const MOST_ROWS = 100;
const RANK = { bad: 0, warn: 1, held: 2, well: 3 };

// `items`: the live Map; `kind`: its name in changes; `cells(name, item)`: a row's cells.
export function liveTable(main, { signal, caption, headings, items, kind, cells }) {
  const filter = h("input", { type: "search", name: "filter", oninput: () => show() });
  const count = h("p", { class: "quiet", role: "status" });
  const body = h("tbody");
  const made = new Map();
  main.append(
    h("div", { class: "row" }, h("label", {}, "Name, state or reason contains", filter)), count,
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
      h("table", { class: "stacked" }, h("caption", { class: "hidden" }, caption),
        h("thead", {}, h("tr", {}, headings.map(([text, isFigure]) => h("th", { scope: "col", class: isFigure ? "figure" : null }, text)))), body)));

  function show() {
    const words = filter.value.trim().toLowerCase();
    const found = [...items].filter(([name, one]) => !words || `${name} ${one.state} ${one.reason}`.toLowerCase().includes(words));
    found.sort(([one, a], [other, b]) => RANK[tone(a.state)] - RANK[tone(b.state)] || one.localeCompare(other));
    const shown = found.slice(0, MOST_ROWS);
    const text = `${found.length} of ${items.size}${found.length > MOST_ROWS ? `; the first ${MOST_ROWS} are shown` : ""}, those that do not run first`;
    if (count.textContent !== text) count.textContent = text;
    keepFocus(() => place(shown.map(([name, one]) => rowOf(name, one))));
  }

  function place(rows) {
    const kept = new Set(rows);
    rows.forEach((each, n) => {
      const present = body.children[n];
      if (present === each) return;
      if (present && !kept.has(present)) present.replaceWith(each);
      else body.insertBefore(each, present ?? null);
    });
    while (body.children.length > rows.length) body.lastChild.remove();
  }

  // Of a row that was made anew, the same link or button has the focus again.
  function keepFocus(change) {
    const active = document.activeElement;
    const name = active?.closest("tr")?.dataset.name;
    const position = name && buttons(made.get(name)?.element).indexOf(active);
    change();
    if (name && document.activeElement !== active) buttons(made.get(name)?.element)[position]?.focus();
  }

  function rowOf(name, one) {
    const known = made.get(name);
    if (known?.one === one) return known.element;
    const element = row(headings, cells(name, one));
    element.dataset.name = name;
    made.set(name, { one, element });
    return element;
  }

  follow(signal, (change) => {
    if (change.isFirst || Object.keys(change[kind]).length || change[`gone_${kind}`]?.length) show();
  });
}

const buttons = (element) => [...(element?.querySelectorAll("a, button") ?? [])];
