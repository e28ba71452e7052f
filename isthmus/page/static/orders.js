// The log of orders: who, when, what, and how it ended.

import { clock, h, table } from "./dom.js";
import { follow } from "./live.js";
import { withToken } from "./login.js";
import { get } from "./server.js";

const TONES = { running: "warn", done: "well", failed: "bad", unknown: "held" };

export function ordersView(main, { signal }) {
  const list = h("div", { "aria-live": "polite" });
  main.append(h("h2", {}, "Orders"), list);
  const show = () => withToken(list, async () => {
    const { orders } = await get("/api/orders");
    if (signal.aborted) return;
    list.replaceChildren(table("Orders of this page, the last first", [["when"], ["who"], ["command"], ["outcome"], ["said", false, "reason"]],
      orders.map((order) => [clock(Date.parse(order.at)), order.who, h("code", {}, order.command), h("span", { class: `state ${TONES[order.outcome]}` }, order.outcome), order.text || "-"]),
      { empty: "none so far" }));
  });
  show();
  follow(signal, (change) => {
    if (change.orders) show();
  });
}
