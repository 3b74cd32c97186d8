// `fan` and `burst`: a process sends numbers round robin to receivers, which report once per chunk. The
// first chunk is one number for each receiver.

import { clock, pause, peakResidentBytes, residentBytes } from './clock.mjs';
import { Mailbox, start } from './mailbox.mjs';
import { Order } from './order.mjs';
import { Tally, sumBelow } from './tally.mjs';

const received = new Tally();

export async function fan({ count, receivers, chunk, settle }, outcome) {
  const sender = new Sender(receivers, chunk, count, null);
  await sender.sendChunk();
  const sent = new Tally();
  sent.arm(1);
  const begun = clock();
  start(async () => {
    while (!sender.isDone()) await sender.sendChunk();
    sent.add(0);
  });
  await sent.complete();
  const elapsed = clock() - begun;
  outcome.metric('delivered_ns', elapsed / count);
  await pause(settle);
  outcome.metric('rss_after_bytes', residentBytes());
  sender.check(outcome);
}

export async function burst({ count, receivers, settle }, outcome) {
  let open;
  const latch = new Promise((resolve) => { open = resolve; });
  const sender = new Sender(receivers, 0, count, latch);
  await sender.sendChunk();
  const sent = new Tally();
  const residentBefore = residentBytes();
  sent.arm(1);
  let handled;
  start(async () => {
    handled = sender.sendChunk();
    sent.add(0);
  });
  await sent.complete();
  const resident = residentBytes();
  open();
  await handled;
  outcome.metric('bytes_per_message', Math.max(0, resident - residentBefore) / count);
  outcome.metric('peak_rss_bytes', peakResidentBytes());
  await pause(settle);
  outcome.metric('rss_after_bytes', residentBytes());
  sender.check(outcome);
}

/** The receivers, and the numbers sent to them so far. */
class Sender {
  #receivers;
  #chunk;
  #total;
  #latch;
  #mailboxes;
  #next = 0;
  #reports = 0;

  /** Starts the receivers, each of which awaits the latch, if there is one, after its first number. */
  constructor(receivers, chunk, count, latch) {
    this.#receivers = receivers;
    this.#total = receivers + count;
    // A multiple of the receivers, so that each gets as many; a single chunk if it is zero.
    this.#chunk = chunk === 0 ? this.#total : Math.ceil(chunk / receivers) * receivers;
    this.#latch = latch;
    this.#mailboxes = Array.from({ length: receivers }, (_, index) => {
      const mailbox = new Mailbox();
      start(() => this.#collect(mailbox, index));
      return mailbox;
    });
  }

  isDone() {
    return this.#next === this.#total;
  }

  /** Sends the next chunk, and returns a promise of its receipt. */
  sendChunk() {
    const end = this.#end(this.#next);
    // Every chunk begins with the first receiver; the last chunk may not reach all of them.
    this.#reports += Math.min(this.#receivers, end - this.#next);
    received.arm(this.#reports);
    let to = 0;
    for (let value = this.#next; value < end; value++) {
      this.#mailboxes[to].send(value);
      to = to + 1 === this.#receivers ? 0 : to + 1;
    }
    this.#next = end;
    return received.complete();
  }

  check(outcome) {
    outcome.check('the sum received', received.sum, sumBelow(this.#total));
    Order.check(outcome);
  }

  #end(begin) {
    return Math.min(begin + (begin === 0 ? this.#receivers : this.#chunk), this.#total);
  }

  async #collect(mailbox, index) {
    const order = new Order(index, this.#receivers);
    let end = this.#end(0);
    let sum = 0;
    for (;;) {
      const value = await mailbox.receive();
      const due = order.note(value);
      sum += value;
      if (due >= end) {
        received.add(sum);
        sum = 0;
        end = this.#end(end);
      }
      if (value < this.#receivers) await this.#latch;
    }
  }
}
