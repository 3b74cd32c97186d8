// The socket to the node: samples come by themselves, questions are answered by their number, and a lost
// connection is made again, later each time. A connection without samples is taken for lost, because a line can die
// without a word.

const PAUSE_MIN = 500;
const PAUSE_MAX = 15_000;
const SILENCE_MAX = 5_000;
const OPENING_MAX = 10_000;
const ANSWER_MAX = 15_000;

/** Events: `state` ({ state, detail }), `welcome`, `sample`, `denied` (a reason). */
export class Connection extends EventTarget {
  #token;
  #socket = null;
  #asked = new Map();
  #number = 0;
  #pause = PAUSE_MIN;
  #timer = null;
  #silence = null;

  constructor(token) {
    super();
    this.#token = token;
    addEventListener("online", () => { if (this.#timer) this.#open(); });
    this.#open();
  }

  /** Asks the node; the promise fails if the connection is lost first. */
  ask(request) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return Promise.reject(new Error("not connected"));
    const id = ++this.#number;
    const answer = new Promise((resolve, reject) => {
      const timer = setTimeout(() => { this.#asked.delete(id); reject(new Error("no answer in time")); }, ANSWER_MAX);
      this.#asked.set(id, { resolve, reject, timer });
    });
    this.#socket.send(JSON.stringify({ type: "ask", id, ...request }));
    return answer;
  }

  close() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#end();
  }

  #open() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#tell("wait", "Connecting");
    const socket = this.#socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/socket`);
    socket.addEventListener("open", () => socket.send(JSON.stringify({ type: "hello", token: this.#token })));
    socket.addEventListener("message", (event) => { if (socket === this.#socket) this.#take(JSON.parse(event.data)); });
    socket.addEventListener("close", (event) => { if (socket === this.#socket) this.#lose(event); });
    this.#expectSample(OPENING_MAX);
  }

  /** Takes the connection for lost unless a sample comes in `time` milliseconds. */
  #expectSample(time) {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#lose({ reason: "No news from the node" }), time);
  }

  #lose(event) {
    this.#end();
    if (event.code === 4401) return this.dispatchEvent(new CustomEvent("denied", { detail: event.reason }));
    this.#again(event);
  }

  #again({ code, reason }) {
    const said = { 1012: "The node stops", 1013: "Too many dashboards are open", 4429: "Too many wrong tokens" }[code];
    // Dashboards that lost the same node do not all come back in the same instant.
    const pause = Math.round((code === 4429 ? 5_000 : this.#pause) * (0.75 + Math.random() / 2));
    this.#pause = Math.min(this.#pause * 2, PAUSE_MAX);
    this.#tell("lost", `${said ?? (reason || "Connection lost")} · reconnecting`);
    this.#timer = setTimeout(() => this.#open(), pause);
  }

  #take(message) {
    if (message.type === "answer") {
      const asked = this.#asked.get(message.id);
      this.#asked.delete(message.id);
      clearTimeout(asked?.timer);
      return asked?.resolve(message);
    }
    if (message.type === "welcome") this.#pause = PAUSE_MIN;
    if (message.type === "sample") {
      this.#tell("live", "Live");
      this.#expectSample(SILENCE_MAX);
    }
    this.dispatchEvent(new CustomEvent(message.type, { detail: message }));
  }

  #end() {
    const socket = this.#socket;
    this.#socket = null; // first, so that its end is no other loss
    socket?.close(1000);
    clearTimeout(this.#silence);
    for (const { reject, timer } of this.#asked.values()) {
      clearTimeout(timer);
      reject(new Error("connection lost"));
    }
    this.#asked.clear();
  }

  #tell(state, text) {
    this.dispatchEvent(new CustomEvent("state", { detail: { state, text } }));
  }
}
