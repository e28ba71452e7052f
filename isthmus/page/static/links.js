// Links: the table of all, and the card of one.

import { bytes, duration, h, number, state, table } from "./dom.js";
import { follow, mesh } from "./live.js";
import { liveTable } from "./rows.js";
import { give } from "./login.js";
import { charts } from "./lines.js";

const HEADINGS = [
  ["link"], ["state"], ["reason", false, "reason"], ["lag", true], ["messages behind", true],
  ["messages/s", true], ["rate", true], ["max_rate", true], ["window in use", true], ["lanes"],
];

export function linksView(main, { signal }) {
  main.append(h("h2", {}, "Links"));
  liveTable(main, { signal, caption: "Links", headings: HEADINGS, items: mesh.links, kind: "links",
    cells: (name, link) => [h("a", { href: `#link/${encodeURIComponent(name)}` }, `${link.from} → ${link.to}`), ...figures(link), laneStates(link)] });
}

function figures(link) {
  return [
    state(link.state), link.reason || "-", duration(link.lag_s), number(link.lag_messages),
    number(link.messages_s, 1), `${bytes(link.bytes_s)}/s`, link.max_rate == null ? "-" : `${bytes(link.max_rate)}/s`, windowText(link),
  ];
}

function laneStates(link) {
  const lanes = Object.entries(link.lanes);
  return lanes.length ? h("span", {}, lanes.flatMap(([name, lane]) => [`${name} `, state(lane.state), " "])) : "-";
}

function windowText(link) {
  if (link.window == null) return "?";
  const part = link.window ? Math.round((100 * link.window_used) / link.window) : 0;
  return `${bytes(link.window_used)} of ${bytes(link.window)} (${part} %)`;
}

export function linkView(main, { signal, name }) {
  const content = h("div", { id: "card" });
  main.append(content);
  if (mesh.isThere && !mesh.links.has(name)) {
    content.append(h("h2", {}, "Link"), h("p", { class: "problem" }, `There is no link ${name} in the mesh. `, h("a", { href: "#links" }, "All links")));
    return;
  }
  const figuresBox = h("div");
  const lines = h("div");
  let buttons = null;
  const title = h("h2", {}, `Link ${name}`);
  content.append(title, figuresBox);
  follow(signal, () => {
    const link = mesh.links.get(name);
    if (!link) {
      figuresBox.replaceChildren(h("p", { class: "problem" }, `Link ${name} is no longer in the mesh.`));
      buttons?.remove();
      return;
    }
    title.textContent = `Link ${link.from} → ${link.to}`;
    if (!buttons) {
      buttons = orders(name);
      content.append(buttons, lines);
      charts(lines, { signal, link: name });
    }
    figuresBox.replaceChildren(card(link), lanes(link));
  });
}

function card(link) {
  const facts = [
    ["state", state(link.state)], ["lag", duration(link.lag_s)], ["messages behind", number(link.lag_messages)],
    ["bytes behind", bytes(link.lag_bytes)], ["messages/s", number(link.messages_s, 1)], ["rate", `${bytes(link.bytes_s)}/s`],
    ["max_rate", link.max_rate == null ? "none" : `${bytes(link.max_rate)}/s`], ["window in use", windowText(link)],
    ["round trip", link.round_trip_s ? `${number(link.round_trip_s * 1000)} ms` : "?"],
    [`clock of ${link.to}`, clockText(link.clock_ahead_ms)],
  ];
  return h("div", {}, link.reason ? h("p", { class: "notes" }, link.reason) : "",
    h("dl", { class: "cards" }, facts.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value)))),
    h("p", {}, "From ", h("a", { href: `#site/${encodeURIComponent(link.from)}` }, link.from), " to ", h("a", { href: `#site/${encodeURIComponent(link.to)}` }, link.to)));
}

function clockText(aheadMs) {
  if (aheadMs == null) return "?";
  return `${duration(Math.abs(aheadMs) / 1000)} ${aheadMs < 0 ? "behind" : "ahead"}`;
}

function lanes(link) {
  const names = Object.keys(link.lanes);
  if (!names.length) return "";
  return table("Lanes", [["lane"], ["state"], ["reason", false, "reason"], ["lag", true], ["messages behind", true], ["window in use", true]],
    names.map((name) => {
      const lane = link.lanes[name];
      return [name, state(lane.state), lane.reason || "-", duration(lane.lag_s), number(lane.lag_messages), windowText(lane)];
    }));
}

function orders(name) {
  return h("div", { class: "row" },
    h("button", { onclick: () => give(`Pause the link ${name}?`, { order: "pause", link: name },
      h("p", {}, "It carries nothing until it is resumed; its messages wait in the sender's log, for as long as the outage window.")) }, "Pause"),
    h("button", { onclick: () => give(`Resume the link ${name}?`, { order: "resume", link: name }) }, "Resume"));
}
