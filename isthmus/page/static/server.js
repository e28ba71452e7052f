// Requests to the page's server, with its session.

export const session = { who: "", may_order: false, is_local: false, csrf: "" };

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Refused(0, "the page's server does not answer: is `isthmus page` running?");
  }
  if (!answer.ok) throw new Refused(answer.status, await answer.text());
  return answer.json();
}

export const get = (path, query = {}) => ask(`${path}?${new URLSearchParams(query)}`);

export const post = (path, content) =>
  ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRF-Token": session.csrf },
    body: JSON.stringify(content),
  });

export async function renewSession() {
  Object.assign(session, await get("/api/session"));
}
