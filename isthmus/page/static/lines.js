// Lines over the last hour, drawn by uPlot.

import { h, problem } from "./dom.js";
import { get } from "./server.js";

const EVERY_MS = 10_000;
const HOUR_S = 3600;
const TITLES = {
  messages_s: "messages/s", bytes_s: "bytes/s", lag_s: "lag in seconds", lag_messages: "messages behind",
  delivered_s: "delivered/s", egress: "waiting to leave", dead_letters: "dead letters", quarantine: "in quarantine",
};

// `of`: {site} or {link}, and the signal that ends the drawing.
export function charts(into, { signal, ...of }) {
  const note = h("p", { class: "quiet" });
  const box = h("div", { class: "charts" });
  into.append(h("h3", {}, "The last hour"), note, box);
  let plots = [];
  const clear = () => {
    plots.forEach((plot) => plot.destroy());
    plots = [];
  };

  async function draw() {
    let hour;
    try {
      hour = await get("/api/history", of);
    } catch (error) {
      clear();
      box.replaceChildren(error.status === 404 ? h("p", { class: "quiet" }, "nothing yet") : problem(error.message));
      return;
    }
    if (signal.aborted) return;
    const { seconds, source, why, ...figures } = hour;
    note.textContent = why || (source === "page" ? "as this page has gathered it since its start" : "from Prometheus") + "; times in UTC";
    clear();
    box.replaceChildren(...Object.entries(figures).map(([name, values]) => figure(name, seconds, values)));
  }

  function figure(name, seconds, values) {
    const known = values.filter((value) => value != null);
    const last = known.length ? known[known.length - 1] : null;
    const place = h("div", { role: "img", "aria-label": `${TITLES[name]}: now ${last ?? "unknown"}, at most ${known.length ? Math.max(...known) : "unknown"}` });
    const element = h("figure", {}, h("figcaption", {}, TITLES[name]), place);
    requestAnimationFrame(() => {
      if (!signal.aborted && place.isConnected) plots.push(plot(place, seconds, values));
    });
    return element;
  }

  draw();
  const timer = setInterval(draw, EVERY_MS);
  document.addEventListener("theme", draw, { signal });
  signal.addEventListener("abort", () => {
    clearInterval(timer);
    clear();
  });
}

function plot(place, seconds, values) {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const end = seconds.at(-1);
  const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
  return new uPlot({
    width: Math.max(200, place.clientWidth), height: 130, cursor: { show: false }, legend: { show: false },
    scales: { x: { range: [end - HOUR_S, end] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, high ?? 1)] } },
    axes: [{ ...axis, values: (_, ticks) => ticks.map((at) => new Date(at * 1000).toISOString().slice(11, 16)) }, { ...axis, size: 60 }],
    series: [{}, { stroke: colour("accent"), width: 2, points: { show: values.length < 3 } }],
  }, [seconds, values], place);
}
