// The search for one message: what the ledgers have of it, and its way as a picture.

import { h, number, svg, table } from "./dom.js";
import { withToken } from "./login.js";
import { get } from "./server.js";

const WIDTH = 190;
const HEIGHT = 62;

export function searchView(main, { signal }) {
  const id = h("input", { name: "id", required: true, size: 40 });
  const day = h("input", { name: "date", placeholder: "2026-11-28", pattern: "\\d{4}-\\d{2}-\\d{2}", size: 12 });
  const button = h("button", { class: "first" }, "Search");
  const result = h("div", { "aria-live": "polite" });
  main.append(h("h2", {}, "Search for a message"),
    h("form", {
      onsubmit: (event) => {
        event.preventDefault();
        withToken(result, async () => {
          button.disabled = true;
          result.replaceChildren(h("p", { class: "quiet" }, "searching the ledgers ..."));
          try {
            const found = await get("/api/trace", { id: id.value, date: day.value });
            if (!signal.aborted) show(result, found);
          } finally {
            button.disabled = false;
          }
        });
      },
    }, h("label", {}, "Its message_id, or its identity in hexadecimal digits", id), h("label", {}, "About when, UTC (searches less)", day), button), result);
}

function show(result, found) {
  const unreadable = Object.entries(found.unreadable).map(([name, why]) => h("p", { class: "notes" }, `not searched: ${name}: ${why}`));
  const searched = found.searched;
  if (!found.messages.length) {
    result.replaceChildren(...unreadable, h("p", {}, `No ledger has it. Searched: ${number(searched.files)} files of ${searched.sites.join(", ") || "no site"}.`),
      h("p", { class: "quiet" }, "Rows become files after five minutes, at quiet sites in an hour; other reasons: `isthmus trace` in a terminal names them."));
    return;
  }
  result.replaceChildren(...unreadable, ...found.messages.map((message) => h("section", {},
    h("h3", {}, `${message.identity}, exchange ${message.exchange}`),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Way of the message" }, way(message)),
    table("What each stage did", [["time"], ["after", true], ["site"], ["what"], ["said", false, "reason"]], message.steps.map((step) => [
      step.time ?? "never", since(step.time, message.published), step.site, step.what, step.path.length > 1 ? `${step.said}, by ${step.path.join(" → ")}` : step.said])))));
}

function since(time, published) {
  if (!time || !published) return "";
  return `${((Date.parse(time) - Date.parse(published)) / 1000).toFixed(3)} s`;
}

// Sites in columns by the number of hops; a line from each site to the next on a path.
function way(message) {
  const spots = new Map();
  const lines = new Set();
  for (const step of message.steps) {
    const path = step.path.length ? step.path : [step.site];
    path.forEach((site, hop) => {
      if (!spots.has(site)) spots.set(site, { hop, steps: [] });
      if (hop) lines.add(JSON.stringify([path[hop - 1], site]));
    });
    if (step.path.length && path[path.length - 1] !== step.site) {
      if (!spots.has(step.site)) spots.set(step.site, { hop: path.length, steps: [] });
      lines.add(JSON.stringify([path[path.length - 1], step.site]));
    }
    if (!spots.has(step.site)) spots.set(step.site, { hop: 0, steps: [] });
    spots.get(step.site).steps.push(step);
  }
  const columns = [];
  for (const [site, spot] of spots) {
    (columns[spot.hop] ??= []).push(site);
    Object.assign(spot, { x: spot.hop * (WIDTH + 50) + 5, y: (columns[spot.hop].length - 1) * (HEIGHT + 14) + 5 });
  }
  const width = columns.length * (WIDTH + 50);
  const height = Math.max(...columns.map((column) => column?.length ?? 0)) * (HEIGHT + 14) + 5;
  const picture = svg("svg", { class: "way", width, height, role: "img", "aria-label": `from ${[...spots.keys()].join(", ")}` });
  for (const line of lines) {
    const [one, other] = JSON.parse(line).map((site) => spots.get(site));
    const [x, y] = [one.x + WIDTH, one.y + HEIGHT / 2];
    picture.append(svg("path", { d: `M${x} ${y} C${x + 25} ${y} ${other.x - 25} ${other.y + HEIGHT / 2} ${other.x} ${other.y + HEIGHT / 2}` }));
  }
  for (const [site, spot] of spots) {
    // What became of the message there; at its origin, that it was published.
    const shown = spot.hop ? spot.steps.at(-1) : spot.steps[0];
    const times = spot.steps.filter((step) => step.time);
    picture.append(svg("rect", { x: spot.x, y: spot.y, width: WIDTH, height: HEIGHT, rx: 6 }),
      text(spot.x + 8, spot.y + 18, site), text(spot.x + 8, spot.y + 36, shown ? shown.what : "no rows", shown?.what === "missing" ? "bad" : ""),
      text(spot.x + 8, spot.y + 54, spot.hop && times.length ? `${times.at(-1).what} after ${since(times.at(-1).time, message.published)}` : times[0]?.time ?? ""));
  }
  return picture;
}

function text(x, y, content, css = "") {
  return svg("text", { x, y, class: css }, content.length > 26 ? `${content.slice(0, 25)}…` : content);
}
