// Dialogs: the login, and the question before each order.

import { h, problem } from "./dom.js";
import { post, renewSession, session } from "./server.js";

function dialog(title, ...content) {
  const box = h("dialog", { "aria-labelledby": "dialog-title" }, h("h2", { id: "dialog-title" }, title), content);
  document.body.append(box);
  box.addEventListener("close", () => box.remove());
  box.showModal();
  return box;
}

// Resolves to true once the person is logged in, to false if the person gives up.
export function askLogin() {
  return new Promise((resolve) => {
    const token = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true });
    const name = h("input", { name: "name", autocomplete: "username", required: true, value: localStorage.getItem("name") ?? "" });
    const trouble = h("div");
    const form = h("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          await post("/api/login", { token: token.value, name: name.value });
          localStorage.setItem("name", name.value);
          await renewSession();
          resolve(true);
          box.close();
          document.dispatchEvent(new Event("session"));
        } catch (error) {
          trouble.replaceChildren(problem(error.message));
        }
      },
    },
      h("label", {}, "Your name, for the log of orders", name),
      h("label", {}, "Token", token),
      h("button", { class: "first" }, "Log in"),
      h("button", { type: "button", onclick: () => box.close() }, "Cancel"));
    const box = dialog("Log in",
      h("p", {}, "Orders, messages and ledgers need the page's token. Unless told otherwise it is in page.token in the mesh's state folder."),
      form, trouble);
    box.addEventListener("close", () => resolve(false));
    (name.value ? token : name).focus();
  });
}

export async function logOut() {
  await post("/api/logout", {});
  document.dispatchEvent(new Event("session"));
}

// Asks, and gives the order; resolves to the logged order, or to null if it was not given.
export async function give(question, order, detail = null) {
  if (!session.may_order && !(await askLogin())) return null;
  return new Promise((resolve) => {
    const trouble = h("div", { "aria-live": "assertive" });
    const yes = h("button", {
      class: "first",
      onclick: async () => {
        yes.disabled = true;
        try {
          resolve(await post("/api/orders", order));
          box.close();
        } catch (error) {
          trouble.replaceChildren(problem(error.message));
          yes.disabled = false;
        }
      },
    }, "Yes, do it");
    const no = h("button", { onclick: () => box.close() }, "No");
    const box = dialog(question, detail ?? "", h("p", { class: "quiet" }, "The log of orders keeps who gave this order, and when."),
      h("div", { class: "row" }, yes, no), trouble);
    box.addEventListener("close", () => resolve(null));
    no.focus();
  });
}

// Runs a question that needs the token: shows its answer, or how to get one.
export async function withToken(into, work) {
  if (!session.may_order) {
    into.replaceChildren(h("p", {}, "This needs the page's token. "), h("button", { class: "first", onclick: () => askLogin() }, "Log in"));
    return;
  }
  try {
    await work();
  } catch (error) {
    into.replaceChildren(problem(error.message));
  }
}
