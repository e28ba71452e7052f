// What a planned outage would do: the tables of the simulation.

import { h, table } from "./dom.js";
import { mesh } from "./live.js";
import { withToken } from "./login.js";
import { post } from "./server.js";

export function outageView(main, { signal }) {
  const names = h("datalist", { id: "names" }, [...mesh.sites.keys(), ...mesh.links.keys()].map((name) => h("option", { value: name })));
  const fail = h("input", { name: "fail", required: true, list: "names", placeholder: "paris-tokyo", size: 26 });
  const time = h("input", { name: "for", required: true, value: "2h", size: 6 });
  const rate = h("input", { name: "rate", required: true, value: "500", size: 10 });
  const size = h("input", { name: "size", value: "1KiB", size: 8 });
  const button = h("button", { class: "first" }, "Compute");
  const result = h("div", { "aria-live": "polite" });
  main.append(h("h2", {}, "What a planned outage would do"),
    h("p", { class: "quiet" }, "The real nodes run in virtual time on the page's machine; nothing of the mesh is touched. A large mesh takes minutes."), names,
    h("form", {
      onsubmit: (event) => {
        event.preventDefault();
        withToken(result, async () => {
          button.disabled = true;
          result.replaceChildren(h("p", { class: "quiet" }, "computing ..."));
          try {
            const fails = fail.value.split(/[\s,]+/).filter(Boolean);
            const { parts } = await post("/api/outage", { fail: fails, for: time.value, rate: rate.value, size: size.value });
            if (!signal.aborted) result.replaceChildren(...parts.map(show));
          } finally {
            button.disabled = false;
          }
        });
      },
    }, h("label", {}, "Links or sites that are away", fail), h("label", {}, "For", time), h("label", {}, "Messages/s to each exchange", rate), h("label", {}, "Size of a body", size), button), result);
}

function show(part) {
  if (part.text) return h("p", {}, part.text);
  return table(part.title, part.headings.map(({ text, is_figure }) => [text, is_figure]), part.rows);
}
