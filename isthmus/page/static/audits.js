// The last audits, their findings, and the repair of what was lost.

import { h, number, table } from "./dom.js";
import { give, withToken } from "./login.js";
import { get, session } from "./server.js";

const LOOK_EVERY_MS = 5000;

export function auditsView(main, { signal }) {
  const list = h("div", { "aria-live": "polite" }, h("p", { class: "quiet" }, "reading the reports ..."));
  main.append(h("h2", {}, "Audits"), list);
  let shown = "";
  let isLooking = false;
  const look = () => withToken(list, async () => {
    const before = shown;
    shown = ""; // until the answer is there: a problem takes the list's place
    const { audits } = await get("/api/audits");
    shown = JSON.stringify(audits);
    // Else what a reader has opened would close.
    if (signal.aborted || shown === before) return;
    list.replaceChildren(...(audits.length ? audits.map(show) : [h("p", {}, "There is no audit in the state folder yet: `isthmus audit` makes one.")]));
  });
  look();
  const timer = setInterval(async () => {
    if (isLooking || !session.may_order) return;
    isLooking = true;
    await look();
    isLooking = false;
  }, LOOK_EVERY_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
}

function show(audit) {
  if (audit.problem) return h("section", {}, h("h3", {}, audit.name), h("p", { class: "problem" }, audit.problem));
  const counts = Object.entries(audit.findings).map(([kind, count]) => `${number(count)} ${kind}`).join(", ");
  const repair = () => give(`Repair what the audit of ${audit.name} found lost?`, { order: "repair", audit: audit.name },
    h("p", {}, "Sites whose logs still have the messages send them again; an audit of the same time follows, which takes minutes."));
  return h("section", {},
    h("h3", {}, audit.name), verdict(audit),
    counts ? h("p", {}, `Findings: ${counts}`) : "",
    audit.after_repair ? h("div", {}, h("p", {}, "After the repair:"), verdict(audit.after_repair)) : "",
    audit.can_repair ? h("div", { class: "row" }, h("button", { onclick: repair }, "Repair")) : "",
    audit.why_not_proven.length ? h("details", {}, h("summary", {}, "Why it is not proven"), h("ul", {}, audit.why_not_proven.map((why) => h("li", {}, why)))) : "",
    audit.shown.length ? h("details", {}, h("summary", {}, `The first findings (${audit.shown.length})`),
      table("Findings", [["kind"], ["message"], ["exchange"], ["from"], ["to"], ["published"], ["why", false, "reason"]],
        audit.shown.map((one) => [one.kind, one.identity || "?", one.exchange, one.origin, one.destination, one.published, one.why]))) : "");
}

function verdict({ verdict, sentence }) {
  const css = { proven: "well", findings: "bad" }[verdict] ?? "warn";
  return h("p", {}, h("span", { class: `state ${css}` }, verdict), ` ${sentence}`);
}
