// The mesh as it is at present: the server's first event has all, later ones have what has changed.

export const mesh = { sites: new Map(), links: new Map(), notes: [], at: 0, problem: "", orders: {}, isThere: false };

const AGAIN_MS = 3000;
const readers = new Set();
let events = null;

// Calls `reader(change)` now and at each change, until `signal` is aborted.
export function follow(signal, reader) {
  readers.add(reader);
  signal.addEventListener("abort", () => readers.delete(reader));
  if (mesh.isThere) reader({ sites: Object.fromEntries(mesh.sites), links: Object.fromEntries(mesh.links), isFirst: true });
}

export function connect(onState) {
  events?.close();
  const stream = events = new EventSource("/api/events");
  let isFirst = true;
  events.onopen = () => {
    isFirst = true;
    onState(true);
  };
  events.onerror = () => {
    onState(false);
    // The browser connects again by itself, but not where the answer was an error.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => stream === events && connect(onState), AGAIN_MS);
  };
  events.onmessage = (event) => {
    const start = performance.now();
    take(JSON.parse(event.data), isFirst);
    isFirst = false;
    // Until it is painted; the browser's tools show these, and tests hold them to a limit.
    requestAnimationFrame(() => setTimeout(() => performance.measure("update", { start })));
  };
}

// Ends the events, and forgets what they brought.
export function disconnect() {
  events?.close();
  events = null;
  mesh.sites.clear();
  mesh.links.clear();
  mesh.isThere = false;
}

function take(change, isFirst) {
  const { sites, links, gone_sites, gone_links, ...rest } = change;
  if (isFirst) {
    mesh.sites.clear();
    mesh.links.clear();
  }
  for (const [name, one] of Object.entries(sites)) mesh.sites.set(name, one);
  for (const [name, one] of Object.entries(links)) mesh.links.set(name, one);
  for (const name of gone_sites) mesh.sites.delete(name);
  for (const name of gone_links) mesh.links.delete(name);
  const isNewRevision = isFirst || rest.revision !== mesh.revision;
  Object.assign(mesh, rest, { isThere: true });
  for (const reader of readers) reader({ ...change, isFirst: isFirst || isNewRevision });
}
