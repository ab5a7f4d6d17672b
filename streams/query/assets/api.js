// The service, asked with the key that was typed in. The key lives in this tab alone and travels in a header, never in an address.

const STORED = "banyan-key";
const BASE = new URL("v1/", document.baseURI);
export const events = new EventTarget();
let unstored = null;

/** The service answered, but not with what was asked for. */
export class ProblemError extends Error {
  constructor(status, problem, retryAfter) {
    super(problem.detail || problem.title || `the service answered ${status}`);
    this.name = "ProblemError";
    this.status = status;
    this.kind = String(problem.type ?? "").replace("urn:banyan:problem:", "");
    this.title = problem.title || "That did not work";
    this.request = String(problem.instance ?? "").replace("urn:banyan:request:", "");
    this.retryAfter = retryAfter;
  }
}

/** Nobody answered. */
export class AwayError extends Error {
  constructor() {
    super("The service cannot be reached.");
    this.name = "AwayError";
    this.title = "The service cannot be reached";
  }
}

export function key() {
  try {
    return sessionStorage.getItem(STORED) ?? unstored;
  } catch {
    return unstored;
  }
}

export function setKey(value) {
  unstored = value;
  try {
    if (value) sessionStorage.setItem(STORED, value);
    else sessionStorage.removeItem(STORED);
  } catch {
    // Storage may be forbidden; then the key is kept until the page is left.
  }
  events.dispatchEvent(new Event("key"));
}

export const part = encodeURIComponent;

export function address(path, query = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) if (value !== null && value !== undefined) url.searchParams.set(name, value);
  return url;
}

async function ask(url, { signal, accept = "application/json" } = {}) {
  const headers = { Accept: accept };
  const mine = key();
  if (mine) headers.Authorization = `Bearer ${mine}`;
  let answer;
  try {
    answer = await fetch(url, { headers, signal, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (error instanceof TypeError && mine && !/^[\x20-\x7e]+$/.test(mine)) throw refused(mine);
    events.dispatchEvent(new Event("away"));
    throw new AwayError();
  }
  events.dispatchEvent(new Event("there"));
  if (answer.ok) return answer;
  let problem = {};
  try {
    problem = await answer.json();
  } catch {
    // Something in between answered; its status is all there is.
  }
  if (answer.status === 401) throw refused(mine, problem);
  throw new ProblemError(answer.status, problem, Number(answer.headers.get("retry-after")) || null);
}

function refused(sent, problem = { title: "A valid key is needed", type: "urn:banyan:problem:unauthorized" }) {
  const error = new ProblemError(401, problem, null);
  events.dispatchEvent(new CustomEvent("unauthorized", { detail: { sent: Boolean(sent) } }));
  return error;
}

/** A JSON answer. */
export async function get(path, query = {}, options = {}) {
  const answer = await ask(address(path, query), options);
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    events.dispatchEvent(new Event("away"));
    throw new AwayError();
  }
}

/** Whether anybody is there, without a key. */
export async function alive() {
  try {
    return (await fetch(new URL("healthz", document.baseURI), { cache: "no-store" })).ok;
  } catch {
    return false;
  }
}

/**
 * Server-sent events, through fetch: EventSource cannot send a key. Connects again, where it was, until `signal` says stop.
 *
 * `on.event(name, data, id)`, `on.open()`, `on.lost(error)`.
 */
export async function follow(path, { after, signal, on }) {
  let last = after;
  let pause = 1_000;
  while (!signal.aborted) {
    try {
      const answer = await ask(address(path, { after: last }), { signal, accept: "text/event-stream" });
      on.open();
      pause = 1_000;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) {
          const event = parse(block);
          if (event === null) continue;
          if (event.id !== null) last = Number(event.id);
          on.event(event.name, event.data);
        }
      }
      on.lost(null);
    } catch (error) {
      if (signal.aborted) return;
      on.lost(error);
      if (error instanceof ProblemError && error.status < 500 && error.status !== 429) return;
      pause = Math.min(15_000, pause * 1.6);
    }
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, pause);
      signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
    });
  }
}

function parse(block) {
  const event = { name: "message", data: "", id: null };
  for (const line of block.split("\n")) {
    const [, field, value] = /^([a-z]*): ?(.*)$/.exec(line) ?? [];
    if (field === "event") event.name = value;
    else if (field === "data") event.data += value;
    else if (field === "id") event.id = value;
  }
  return event.data ? { ...event, data: JSON.parse(event.data) } : null;
}
