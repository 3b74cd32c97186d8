// The mailbox of a process: a queue without limit that one process reads.

import { clock } from './clock.mjs';

/** Messages that were taken and are still in the array, at least, before it is shortened. */
const TAKEN_MAX = 1024;

export class Mailbox {
  #messages = [];
  #taken = 0;
  /** Resolves the promise that the process awaits, if it awaits one. */
  #resolve = null;

  send(message) {
    if (this.#resolve === null) {
      this.#messages.push(message);
    } else {
      const resolve = this.#resolve;
      this.#resolve = null;
      resolve(message);
    }
  }

  /** Returns the next message, or a promise of it: the caller awaits either. */
  receive() {
    if (this.#taken < this.#messages.length) return this.#take();
    return new Promise((resolve) => { this.#resolve = resolve; });
  }

  /** Returns a promise of the next message, or of undefined after some seconds. */
  receiveWithin(seconds) {
    if (this.#taken < this.#messages.length) return Promise.resolve(this.#take());
    return new Promise((resolve) => {
      const deadline = clock() + seconds * 1e9;
      const expire = () => {
        // A timer of Node may fire up to a millisecond early.
        const left = deadline - clock();
        if (left > 0) {
          timer = setTimeout(expire, Math.ceil(left / 1e6));
        } else {
          this.#resolve = null;
          resolve(undefined);
        }
      };
      let timer = setTimeout(expire, seconds * 1000);
      this.#resolve = (message) => {
        clearTimeout(timer);
        resolve(message);
      };
    });
  }

  #take() {
    const message = this.#messages[this.#taken++];
    if (this.#taken === this.#messages.length) {
      // A long array is given back instead of kept for the next queue.
      if (this.#taken > TAKEN_MAX) this.#messages = [];
      else this.#messages.length = 0;
      this.#taken = 0;
    } else if (this.#taken > TAKEN_MAX && this.#taken * 2 > this.#messages.length) {
      this.#messages = this.#messages.slice(this.#taken);
      this.#taken = 0;
    }
    return message;
  }
}

/** Starts a process: an async function that runs from its first message on. */
export function start(body) {
  body().catch((error) => {
    console.error(error);
    process.exit(1);
  });
}
