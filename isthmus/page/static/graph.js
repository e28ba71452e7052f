// The mesh as a graph. The same states stand in the tables, for readers without a pointer or sight.

import { duration, h, problem, state, tone, worst } from "./dom.js";
import { follow, mesh } from "./live.js";
import { get } from "./server.js";

const SHAPES = { well: "ellipse", warn: "triangle", bad: "rectangle", held: "diamond" };
const STROKES = { well: "solid", warn: "dashed", bad: "dotted", held: "dashed" };
const MOST_ZOOM = 1.3; // of a mesh with few sites
const opened = new Set();

export function graphView(main, { signal }) {
  const box = h("div", { id: "graph", role: "img", "aria-label": "Graph of sites and links; the views Links and Sites have the same as tables" });
  const notes = h("div", { id: "notes" });
  const folds = h("div", { class: "row", id: "folds" });
  main.append(h("h2", {}, "Mesh"), notes, box, legend(), folds);
  let graph = null;
  let drawing = null;
  let shownNotes = "";
  signal.addEventListener("abort", () => graph?.destroy());

  async function draw() {
    try {
      drawing = await get("/api/drawing", [...opened].map((hub) => ["open", hub]));
    } catch (error) {
      notes.replaceChildren(problem(error.message));
      return;
    }
    if (signal.aborted) return;
    graph?.destroy();
    graph = cytoscape({ container: box, elements: elements(drawing), style: style(), layout: { name: "preset", padding: 45 },
      minZoom: 0.1, maxZoom: 3, autoungrabify: true, boxSelectionEnabled: false });
    if (graph.zoom() > MOST_ZOOM) graph.zoom(MOST_ZOOM).center();
    graph.on("tap", "node", (event) => {
      const { hub, sites } = event.target.data();
      if (hub) fold(hub);
      else location.hash = `#site/${encodeURIComponent(sites[0])}`;
    });
    graph.on("tap", "edge", (event) => {
      const { links } = event.target.data();
      location.hash = links.length <= 2 ? `#link/${encodeURIComponent(worstLink(links))}` : "#links";
    });
    showFolds();
    paint();
  }

  function fold(hub) {
    if (!opened.delete(hub)) opened.add(hub);
    draw();
  }

  function showFolds() {
    const hubs = [...drawing.spots.filter((spot) => spot.hub).map((spot) => [spot.hub, `Show the ${spot.sites.length} branches of ${spot.hub}`]),
      ...drawing.opened.map((hub) => [hub, `Fold the branches of ${hub}`])];
    folds.replaceChildren(...hubs.map(([hub, text]) => h("button", { onclick: () => fold(hub) }, text)));
  }

  function paint() {
    if (!graph) return;
    graph.batch(() => {
      for (const node of graph.nodes()) paintNode(node);
      for (const edge of graph.edges()) paintEdge(edge);
    });
  }

  document.addEventListener("theme", () => graph?.style(style()), { signal });
  follow(signal, (change) => {
    // Unchanged notes stay, and with them what somebody has selected there.
    const lines = mesh.notes.join("\n");
    if (lines !== shownNotes) notes.replaceChildren(...mesh.notes.map((note) => h("p", { class: "notes" }, note)));
    shownNotes = lines;
    if (change.isFirst) draw();
    else paint();
  });
}

function legend() {
  return h("p", { class: "legend" }, ["running", "lagging", "down", "paused"].map(state),
    "wider lines carry more; seconds are the lag");
}

function elements(drawing) {
  return [
    ...drawing.spots.map((spot) => ({ data: { ...spot, label: "" }, position: { x: spot.x, y: spot.y } })),
    ...drawing.lines.map((line) => ({ data: { id: line.id, source: line.one, target: line.other, links: line.links, label: "" } })),
  ];
}

function update(element, data) {
  for (const [name, value] of Object.entries(data)) if (element.data(name) !== value) element.data(name, value);
}

function paintNode(node) {
  const { sites, hub } = node.data();
  const states = sites.map((name) => mesh.sites.get(name)?.state ?? "unknown");
  const isWrong = states.filter((one) => tone(one) !== "well").length;
  const label = hub ? `${sites.length} at ${hub}${isWrong ? `, ${isWrong} not running` : ""}`
    : states[0] === "running" ? sites[0] : `${sites[0]}: ${states[0]}`;
  update(node, { label, tone: tone(worst(states)), size: hub ? 44 : 26 });
}

function paintEdge(edge) {
  const links = edge.data("links").map((name) => mesh.links.get(name)).filter(Boolean);
  const rate = links.reduce((sum, link) => sum + (link.bytes_s ?? 0), 0);
  const lag = Math.max(0, ...links.map((link) => link.lag_s ?? 0));
  const now = worst(links.map((link) => link.state));
  const label = [tone(now) === "well" ? "" : now, lag >= 1 ? duration(lag) : ""].filter(Boolean).join(", ");
  update(edge, { label, tone: tone(now), width: Math.round(10 * Math.min(10, 1.5 + Math.log10(1 + rate / 1000) * 2)) / 10 });
}

function worstLink(links) {
  const bad = worst(links.map((name) => mesh.links.get(name)?.state ?? "running"));
  return links.find((name) => mesh.links.get(name)?.state === bad) ?? links[0];
}

function style() {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const text = { color: colour("text"), "font-size": 12, "min-zoomed-font-size": 6, "text-background-color": colour("raised"), "text-background-opacity": 0.85, "text-background-padding": 2 };
  const tones = Object.keys(SHAPES).flatMap((name) => [
    { selector: `node[tone="${name}"]`, style: { "background-color": colour(name), shape: SHAPES[name] } },
    { selector: `edge[tone="${name}"]`, style: { "line-color": colour(name), "line-style": STROKES[name] } },
  ]);
  return [
    { selector: "node", style: { ...text, label: "data(label)", width: 26, height: 26, "text-valign": "bottom", "text-margin-y": 4 } },
    { selector: "node[size]", style: { width: "data(size)", height: "data(size)" } },
    { selector: "edge", style: { ...text, label: "data(label)", width: 2, "curve-style": "straight" } },
    { selector: "edge[width]", style: { width: "data(width)" } },
    ...tones,
  ];
}
