// `send`: messages from one process, or from several, to another, which confirms their sum.

import { clock } from './clock.mjs';
import { Mailbox, start } from './mailbox.mjs';
import { Tally, shareBegin, sumBelow } from './tally.mjs';

/** The message after which the receiver reports its sum. */
const END = -1;

export async function send({ count, senders }, outcome) {
  const mailbox = new Mailbox();
  const reports = new Mailbox();
  start(() => add(mailbox, reports));
  const done = new Tally();
  let lastDone = 0;
  done.arm(senders);

  const begun = clock();
  for (let sender = 0; sender < senders; sender++) {
    const begin = shareBegin(count, sender, senders);
    const end = shareBegin(count, sender + 1, senders);
    start(async () => {
      for (let value = begin; value < end; value++) mailbox.send(value);
      lastDone = Math.max(lastDone, clock() - begun);
      done.add(end - begin);
    });
  }
  await done.complete();
  mailbox.send(END);
  const sum = await reports.receive();
  const delivered = clock() - begun;

  outcome.metric('send_ns', lastDone / count);
  outcome.metric('delivered_ns', delivered / count);
  outcome.check('the sum received', sum, sumBelow(count));
  outcome.check('senders that finished', done.count, senders);
  outcome.check('messages sent', done.sum, count);
}

async function add(mailbox, reports) {
  let sum = 0;
  let value;
  while ((value = await mailbox.receive()) !== END) sum += value;
  reports.send(sum);
}
