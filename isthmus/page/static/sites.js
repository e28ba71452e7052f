// Sites: the table of all, and the card of one with the messages put aside there.

import { bytes, clock, h, number, problem, state, table } from "./dom.js";
import { follow, mesh } from "./live.js";
import { liveTable } from "./rows.js";
import { give, withToken } from "./login.js";
import { charts } from "./lines.js";
import { get } from "./server.js";

const HEADINGS = [
  ["site"], ["state"], ["reason", false, "reason"], ["waiting to leave", true], ["delivered", true],
  ["delivered/s", true], ["dead letters", true], ["quarantine", true],
];
const QUEUES = { "dead-letters": "Dead letters", quarantine: "Quarantine" };

export function sitesView(main, { signal }) {
  main.append(h("h2", {}, "Sites"));
  liveTable(main, { signal, caption: "Sites", headings: HEADINGS, items: mesh.sites, kind: "sites",
    cells: (name, site) => [
      h("a", { href: `#site/${encodeURIComponent(name)}` }, name), state(site.state), site.reason || "-", number(site.egress),
      number(site.delivered), number(site.delivered_s, 1), number(site.dead_letters), number(site.quarantine),
    ] });
}

export function siteView(main, { signal, name }) {
  const content = h("div", { id: "card" });
  main.append(content);
  if (mesh.isThere && !mesh.sites.has(name)) {
    content.append(h("h2", {}, "Site"), h("p", { class: "problem" }, `There is no site ${name} in the mesh. `, h("a", { href: "#sites" }, "All sites")));
    return;
  }
  const figures = h("div");
  const gaps = h("div");
  let gapsShown = "";
  const aside = h("div");
  const lines = h("div");
  content.append(h("h2", {}, `Site ${name}`), figures, gaps, orders(name), aside, lines);
  aside.append(...Object.keys(QUEUES).map((queue) => queueBox(name, queue)));
  charts(lines, { signal, site: name });
  follow(signal, () => {
    const site = mesh.sites.get(name);
    if (!site) {
      figures.replaceChildren(problem(`Site ${name} is no longer in the mesh.`));
      return;
    }
    figures.replaceChildren(card(name, site));
    const now = JSON.stringify(site.gaps);
    if (now !== gapsShown) gaps.replaceChildren(...site.gaps.map((gap) => gapBox(name, gap)));
    gapsShown = now;
  });
}

function card(name, site) {
  const facts = [
    ["state", state(site.state)], ["waiting to leave", number(site.egress)], ["delivered", number(site.delivered)],
    ["delivered/s", number(site.delivered_s, 1)], ["not settled yet", number(site.undelivered)], ["duplicates", number(site.duplicates)],
    ["redelivered", number(site.redelivered)], ["unrouted", number(site.unrouted)], ["expired", number(site.expired)],
    ["deferred", number(site.deferred)], ["dead letters", number(site.dead_letters)], ["quarantine", number(site.quarantine)],
  ];
  const nodes = Object.entries(site.nodes).map(([node, one]) => [node, state(one.state), one.reason || "-"]);
  const links = [...mesh.links].filter(([, link]) => link.from === name || link.to === name).slice(0, 50);
  return h("div", {},
    site.reason ? h("p", { class: "notes" }, site.reason) : "",
    site.troubles.map((line) => h("p", { class: "notes" }, line)),
    h("dl", { class: "cards" }, facts.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value)))),
    nodes.length ? table("Nodes", [["node"], ["state"], ["reason", false, "reason"]], nodes) : "",
    h("p", {}, "Links: ", links.flatMap(([id, link]) => [h("a", { href: `#link/${encodeURIComponent(id)}` }, `${link.from} → ${link.to}`), ` ${link.state}; `])));
}

function gapBox(name, gap) {
  const missing = h("ul", {}, gap.missing.map((line) => h("li", {}, line)));
  return h("section", { class: "problem" },
    h("h3", {}, `Gap: ${gap.stage}`),
    h("p", {}, `stands since ${clock(gap.since_ms)}; missing: ${gap.messages == null ? "nobody knows how many" : number(gap.messages)} messages`),
    missing,
    h("button", { onclick: () => give(`Go on without these messages at ${name}?`, { order: "accept-gap", site: name, gap: gap.id },
      h("div", {}, h("p", {}, "The audit will report them as lost, unless they come another way."), missing.cloneNode(true))) }, "Accept the gap"));
}

function orders(name) {
  const button = (text, question, order, detail) => h("button", { onclick: () => give(question, { order, site: name }, h("p", {}, detail)) }, text);
  return h("div", { class: "row" },
    button("Pause", `Pause ${name}?`, "pause", "It takes nothing from its egress queues and delivers nothing until it is resumed; its log passes on what it receives."),
    button("Resume", `Resume ${name}?`, "resume", "A paused or draining site goes on."),
    button("Drain", `Drain ${name}?`, "drain", "It is to leave the mesh: its links in end, and what it has goes out. End its publishers first."));
}

function queueBox(name, queue) {
  const list = h("div", { "aria-live": "polite" });
  return h("section", {}, h("h3", {}, QUEUES[queue]),
    h("div", { class: "row" },
      h("button", { onclick: () => withToken(list, () => showQueue(list, name, queue)) }, `Look into ${QUEUES[queue].toLowerCase()}`)), list);
}

async function showQueue(list, name, queue) {
  list.replaceChildren(h("p", { class: "quiet" }, "asking the node ..."));
  const look = await get(`/api/aside/${encodeURIComponent(name)}/${queue}`);
  const again = () => withToken(list, () => showQueue(list, name, queue));
  const do_ = (order, ids, question, detail) => give(question, { order, site: name, aside: queue, ...ids }, h("p", {}, detail)).then((given) => given && list.replaceChildren(
    h("p", { role: "status" }, "Ordered: ", h("a", { href: "#orders" }, "its outcome"), " "), h("button", { onclick: again }, "Look again")));
  const retry = "They go out past the barrier, flagged x-mesh-redelivered. What arrived meanwhile another way is not sent.";
  const drop = "They are gone for good at this site.";
  const rows = look.messages.map((one) => [
    h("button", { class: "plain", onclick: () => withToken(body, () => showMessage(body, name, queue, one.id)) }, one.id),
    one.exchange, one.routing_key, one.path[0] ?? "?", bytes(one.bytes), one.reason,
    h("span", {},
      h("button", { "aria-label": `Retry ${one.id}`, onclick: () => do_("retry", { ids: [one.id] }, `Send ${one.id} again?`, retry) }, "Retry"), " ",
      h("button", { "aria-label": `Drop ${one.id}`, onclick: () => do_("drop", { ids: [one.id] }, `Drop ${one.id}?`, drop) }, "Drop")),
  ]);
  const body = h("div", { "aria-live": "polite" });
  list.replaceChildren(
    look.problem ? problem(look.problem) : "",
    h("p", {}, `${number(look.total)} wait${look.total > look.messages.length ? `; the first ${look.messages.length} are shown` : ""}.`),
    h("div", { class: "row" }, look.total ? [
      h("button", { onclick: () => do_("retry", { all: true }, `Send all ${number(look.total)} again?`, retry) }, "Retry all"),
      h("button", { onclick: () => do_("drop", { all: true }, `Drop all ${number(look.total)}?`, drop) }, "Drop all")] : ""),
    table(QUEUES[queue], [["ID"], ["exchange"], ["key"], ["from"], ["bytes", true], ["reason", false, "reason"], ["orders"]], rows, { isNamed: true }), body);
}

async function showMessage(body, name, queue, id) {
  body.replaceChildren(h("p", { class: "quiet" }, "asking the node ..."));
  const one = await get(`/api/aside/${encodeURIComponent(name)}/${queue}/${encodeURIComponent(id)}`);
  const facts = [["reason", one.reason], ["attempts", one.attempts], ["exchange", one.exchange], ["key", one.routing_key],
    ["path", one.path.join(" → ")], ["batch", one.batch], ["identity", one.identity], ["published", one.published_ms == null ? "?" : clock(one.published_ms)]];
  body.replaceChildren(h("h3", {}, `Message ${id}`),
    table("Properties", [["field"], ["value"]], facts.map(([field, value]) => [field, String(value ?? "?")]), { stacked: false }),
    h("p", { class: "quiet" }, `Body, ${number(one.bytes)} bytes${one.is_cut ? ", of which the first 4,096 are shown" : ""}${one.is_text ? "" : "; it is no text: bytes are escaped"}`),
    h("pre", { tabindex: 0 }, one.text));
}
