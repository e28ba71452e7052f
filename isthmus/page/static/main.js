// The page: its views by the address's fragment, its header, and its login.

import { h, problem } from "./dom.js";
import { connect, disconnect, follow, mesh } from "./live.js";
import { renewSession, session } from "./server.js";
import { askLogin, logOut } from "./login.js";
import { graphView } from "./graph.js";
import { linksView, linkView } from "./links.js";
import { sitesView, siteView } from "./sites.js";
import { searchView } from "./search.js";
import { auditsView } from "./audits.js";
import { outageView } from "./outage.js";
import { ordersView } from "./orders.js";

const VIEWS = [
  ["mesh", "Mesh", graphView],
  ["links", "Links", linksView],
  ["sites", "Sites", sitesView],
  ["search", "Search", searchView],
  ["audits", "Audits", auditsView],
  ["outage", "Outage", outageView],
  ["orders", "Orders", ordersView],
];
const CARDS = { site: ["sites", siteView], link: ["links", linkView] };

const main = document.getElementById("main");
let shown = new AbortController();

function show() {
  shown.abort();
  shown = new AbortController();
  const [kind, ...rest] = decode(location.hash.slice(1)).split("/");
  const card = CARDS[kind];
  const name = card ? card[0] : VIEWS.some(([id]) => id === kind) ? kind : "mesh";
  const view = card ? card[1] : VIEWS.find(([id]) => id === name)[2];
  document.getElementById("views").replaceChildren(...VIEWS.map(([id, title]) =>
    h("li", {}, h("a", { href: `#${id}`, "aria-current": id === name ? "page" : null }, title))));
  main.replaceChildren();
  if (!mayLook()) {
    main.append(problem("this page is only for people with the token"), h("button", { class: "first", onclick: () => askLogin() }, "Log in"));
    return;
  }
  view(main, { signal: shown.signal, name: rest.join("/") });
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function showPerson() {
  const person = document.getElementById("person");
  const theme = h("button", { class: "plain", onclick: switchTheme }, "Light or dark");
  const button = session.may_order
    ? h("button", { class: "plain", onclick: logOut }, "Log out")
    : h("button", { class: "plain", onclick: () => askLogin() }, "Log in");
  person.replaceChildren(theme, session.may_order ? h("span", {}, session.who) : "", button);
}

function switchTheme() {
  const isDark = getComputedStyle(document.documentElement).colorScheme === "dark"
    || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  document.dispatchEvent(new Event("theme"));
}

function showLive() {
  const live = document.getElementById("live");
  const text = !mayLook() ? "" : !isOpen ? "not connected: what is shown is old"
    : mesh.problem || (mesh.isThere ? `live, revision ${mesh.revision}` : "asking the nodes ...");
  const isWell = isOpen && !mesh.problem;
  if (live.textContent !== text) live.textContent = text;
  live.className = isWell ? "" : "bad";
  const running = [...mesh.sites.values()].filter((site) => site.state === "running").length;
  document.title = mesh.isThere ? `${running}/${mesh.sites.size} ${mesh.mesh} - Isthmus` : "Isthmus";
  document.getElementById("title").textContent = mesh.isThere ? `Mesh ${mesh.mesh}` : "Isthmus";
}

async function begin() {
  await renewSession();
  showPerson();
  if (mayLook()) connect(onConnection);
  else disconnect();
  showLive();
  show();
}

const mayLook = () => session.is_local || session.may_order;

let isOpen = true;

// A session may have ended with its time, or with a server that was started anew.
async function onConnection(now) {
  const hasChanged = now !== isOpen;
  isOpen = now;
  showLive();
  if (!hasChanged) return;
  try {
    await renewSession();
  } catch {
    return; // the server is away, which the header says
  }
  showPerson();
  if (!mayLook()) begin();
}

const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
addEventListener("hashchange", () => {
  if (location.hash === "#main") return;
  show();
  main.focus();
});
document.addEventListener("session", begin);
follow(new AbortController().signal, showLive);
begin().catch((error) => main.replaceChildren(problem(error.message)));
