// `pairs` and `ring`: rings of processes pass a number on, and each adds one to it.

import { clock } from './clock.mjs';
import { Mailbox, start } from './mailbox.mjs';
import { Order } from './order.mjs';
import { Tally, shareBegin } from './tally.mjs';

const finished = new Tally();

export async function pairs({ count, pairs: rings }, outcome) {
  const elapsed = await measure(count, rings, 2, outcome);
  outcome.metric('message_ns', elapsed / count);
}

export async function ring({ count, processes }, outcome) {
  const elapsed = await measure(count, 1, processes, outcome);
  outcome.metric('wall_s', elapsed / 1e9);
  outcome.metric('hop_ns', elapsed / count);
}

async function measure(count, rings, size, outcome) {
  const messages = (ring) => shareBegin(count, ring + 1, rings) - shareBegin(count, ring, rings);
  const firsts = Array.from({ length: rings }, (_, ring) => startRing(size, messages(ring)));
  // A ring without a share of the messages does not begin.
  const begun = Math.min(rings, count);
  finished.arm(begun);
  const start = clock();
  firsts.forEach((first, ring) => {
    if (messages(ring) > 0) first.send(0);
  });
  await finished.complete();
  const elapsed = clock() - start;

  outcome.check('rings that finished', finished.count, begun);
  outcome.check('messages passed on', finished.sum, count);
  Order.check(outcome);
  return elapsed;
}

function startRing(size, messages) {
  const links = Array.from({ length: size }, () => new Mailbox());
  links.forEach((mailbox, place) => {
    const next = links[(place + 1) % size];
    start(() => pass(mailbox, next, new Order(place, size), messages));
  });
  return links[0];
}

async function pass(mailbox, next, order, messages) {
  for (;;) {
    const value = await mailbox.receive();
    order.note(value);
    const sent = value + 1;
    if (sent === messages) finished.add(sent);
    else next.send(sent);
  }
}
