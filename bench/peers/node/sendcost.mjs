// `send-cost`: local calls for some time, then messages to another process for as long.

import { clock } from './clock.mjs';
import { Mailbox, start } from './mailbox.mjs';
import { sumBelow } from './tally.mjs';

const FIRST_CALLS = 10;
/** How often a loop is made, at most, until it takes half of its length. */
const ATTEMPTS = 3;
/** Lengths of the source's loops after the first, in milliseconds. */
const SOURCE_MS = [1, 500, 3000, 10_000];
/** Bytes of the messages of a round, at most, each with MESSAGE_BYTES besides those that it carries. */
const ROUND_BYTES = 64 * 1024 * 1024;
const MESSAGE_BYTES = 64;

/** The message after which the receiver confirms what it has received. */
const CONFIRM = null;

/** Several functions behind one call, because the compilers inline a call that always finds a few. */
const CALLS = [
  (made) => made + 1, (made) => made + 1, (made) => made + 1, (made) => made + 1,
  (made) => made + 1, (made) => made + 1, (made) => made + 1, (made) => made + 1,
];

export async function sendCost({ count: longest, payload, depth }, outcome) {
  const lengths = [...SOURCE_MS.filter((length) => length < longest), longest];
  let calls = FIRST_CALLS;
  let { took: local, made } = callAll(calls);
  for (const length of lengths) {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      calls = callsIn(length, calls, local);
      ({ took: local, made } = callAll(calls));
      if (isLongEnough(local, length)) break;
    }
  }

  const sender = new Sender(payload);
  let messages = FIRST_CALLS;
  let { sent, delivered } = await sender.sendAll(messages, 0);
  for (const length of lengths) {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      messages = callsIn(length, messages, sent);
      ({ sent, delivered } = await sender.sendAll(messages, length === longest ? depth : 0));
      if (isLongEnough(sent, length)) break;
    }
  }

  outcome.metric('local_ns', local / calls);
  outcome.metric('send_ns', sent / messages);
  outcome.metric('delivered_ns', delivered / messages);
  outcome.check('local calls', made, calls);
  outcome.check('messages received', sender.received, sender.count);
  outcome.check('the sum received', sender.receivedSum, sender.sum);
}

function callAll(calls) {
  const begun = clock();
  let made = 0;
  for (let call = 0; call < calls; call++) made = CALLS[call & 7](made);
  return { took: clock() - begun, made };
}

/** The number of calls that take some milliseconds if so many took so long. */
function callsIn(milliseconds, calls, took) {
  return Math.max(1, Math.floor((milliseconds * 1e6 * calls) / Math.max(1, took)));
}

function isLongEnough(took, milliseconds) {
  return 2 * took >= milliseconds * 1e6;
}

class Sender {
  #mailbox = new Mailbox();
  #reports = new Mailbox();
  #buffer;
  count = 0;
  sum = 0;
  received = 0;
  receivedSum = 0;

  constructor(payload) {
    this.#buffer = Buffer.alloc(payload);
    start(() => receiveAll(this.#mailbox, this.#reports));
  }

  /**
   * Sends messages in rounds, each to a mailbox in which some messages wait. The receiver takes none of them as
   * long as the sender has the thread.
   */
  async sendAll(messages, depth) {
    const round = Math.max(1, Math.floor(ROUND_BYTES / (this.#buffer.length + MESSAGE_BYTES)));
    let sent = 0;
    let delivered = 0;
    for (let left = messages; left > 0; left -= round) {
      this.#send(depth);
      const begun = clock();
      this.#send(Math.min(left, round));
      sent += clock() - begun;
      this.#mailbox.send(CONFIRM);
      const { count, sum } = await this.#reports.receive();
      delivered += clock() - begun;
      this.received += count;
      this.receivedSum += sum;
    }
    return { sent, delivered };
  }

  #send(messages) {
    const mailbox = this.#mailbox;
    const buffer = this.#buffer;
    const last = buffer.length - 1;
    if (last < 0) {
      for (let number = 0; number < messages; number++) mailbox.send(number);
      this.sum += sumBelow(messages);
    } else {
      for (let number = 0; number < messages; number++) {
        buffer[0] = number;
        buffer[last] = number;
        mailbox.send(Buffer.from(buffer));
      }
      const bytes = Math.floor(messages / 256) * sumBelow(256) + sumBelow(messages % 256);
      this.sum += messages * buffer.length + 2 * bytes;
    }
    this.count += messages;
  }
}

async function receiveAll(mailbox, reports) {
  let count = 0;
  let sum = 0;
  for (;;) {
    const message = await mailbox.receive();
    if (message === CONFIRM) {
      reports.send({ count, sum });
      count = 0;
      sum = 0;
    } else {
      count += 1;
      sum += typeof message === 'number' ? message : message.length + message[0] + message[message.length - 1];
    }
  }
}
