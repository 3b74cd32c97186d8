// The session and the API. All tabs of the browser share the session: its begin and its end in one are those of all.

const SESSION = "throng.session";

let session = read();
const entering = [];
const leaving = [];

function read() {
  try {
    return JSON.parse(localStorage.getItem(SESSION));
  } catch {
    return null;
  }
}

/** Returns the session, `{name, token}`, or null. */
export const current = () => session;

/** Begins a session. */
export function begin(started) {
  session = started;
  localStorage.setItem(SESSION, JSON.stringify(started));
}

/** Registers a function that is called when another tab has begun a session. */
export const onBegin = (listener) => entering.push(listener);

/** Registers a function that is called when the session has ended. */
export const onEnd = (listener) => leaving.push(listener);

let farewell = null; // reason of an end that this tab has asked for

/** Ends the session on this side; `reason` is a sentence for the user. */
function end(reason) {
  if (!session) return;
  // Another tab may have begun the next one.
  if (read()?.token === session.token) localStorage.removeItem(SESSION);
  session = null;
  for (const listener of leaving) listener(farewell ?? reason);
}

/** Tells this side that the server has ended the session. */
export const ended = () => end("Your session has ended. Log in again.");

/** Makes a request that ends the session. The socket or another tab may tell of the end before the answer comes. */
export async function leave(method, path, body, reason) {
  farewell = reason;
  try {
    await api(method, path, body);
    end(reason);
  } finally {
    farewell = null;
  }
}

addEventListener("storage", ({ key }) => {
  if (key !== SESSION && key !== null) return;
  const stored = read();
  if (stored?.token === session?.token) return;
  end("You have logged out in another tab.");
  session = stored;
  if (session) for (const listener of entering) listener();
});

/** Error of a request: the sentence of the server, its status, the last part of the problem's URN. */
export class ApiError extends Error {
  constructor(message, status, slug) {
    super(message);
    this.status = status;
    this.slug = slug;
  }

  /** Whether the same request may succeed later. */
  get isTemporary() {
    return this.status === 0 || this.status === 429 || this.status >= 502;
  }
}

/** Time, in milliseconds, in which an answer must arrive whole: over a line that is dead, none ever does. */
const ANSWER_MAX = 20_000;

/** Calls the API. Returns null for an answer without a body. */
export async function api(method, path, body, headers = {}) {
  const asked = session;
  const sent = { ...headers };
  if (asked) sent.authorization = `Bearer ${asked.token}`;
  if (body !== undefined) sent["content-type"] = "application/json";
  const signal = AbortSignal.timeout(ANSWER_MAX);
  const response = await fetch(`/api/v1${path}`, { method, headers: sent, body: body && JSON.stringify(body), signal })
    .catch(unreachable);
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => response.ok ? unreachable() : {});
  if (response.ok) return answer;
  const slug = String(answer.type ?? "").split(":").at(-1);
  // A wrong current password is no end of the session.
  if (response.status === 401 && slug !== "wrong-credentials" && asked && asked === session) ended();
  const said = sentence(answer.detail ?? `The server answered with status ${response.status}.`);
  throw new ApiError(said + later(response), response.status, slug);
}

function unreachable() {
  throw new ApiError("The server cannot be reached. Check the connection, then try again.", 0, "");
}

/** Says when to try again, if the server does. */
function later(response) {
  const seconds = Number(response.headers.get("retry-after"));
  if (!(seconds > 0) || response.status !== 429) return "";
  if (seconds < 90) return ` Try again in ${seconds} second${seconds === 1 ? "" : "s"}.`;
  const time = new Date(Date.now() + seconds * 1000);
  return ` Try again at ${time.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" })}.`;
}

/** Makes a detail of the server a sentence. */
export function sentence(detail) {
  const text = String(detail).trim();
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

/** Makes a key under which the server carries out a request once. */
export const requestKey = () => crypto.getRandomValues(new Uint32Array(4)).join("-");

/** Makes a path with a query; null and undefined are left out. */
export function query(path, fields) {
  const given = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}
