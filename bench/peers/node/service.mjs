// A process that replies to each call with the sum of its own number and the call's.

import { Mailbox, start } from './mailbox.mjs';

/** The message on which a service exits. */
const STOP = null;

export class Service {
  #mailbox = new Mailbox();

  /** Starts a service that adds itself to the tally, if there is one, when it exits. */
  constructor(state, exited) {
    start(() => serve(this.#mailbox, state, exited));
  }

  /** Returns a promise of the reply. */
  call(value) {
    return new Promise((reply) => this.#mailbox.send({ value, reply }));
  }

  stop() {
    this.#mailbox.send(STOP);
  }
}

async function serve(mailbox, state, exited) {
  let request;
  while ((request = await mailbox.receive()) !== STOP) request.reply(request.value + state);
  exited?.add(state);
}
