// `sleep`: processes wait for a message with a time-out, until all have timed out.

import { clock, peakResidentBytes } from './clock.mjs';
import { Mailbox, start } from './mailbox.mjs';
import { Tally, sumBelow } from './tally.mjs';

const timedOut = new Tally();
const early = new Tally();
let begun = 0;
let timeout = 0;

export async function sleep({ count, seconds }, outcome) {
  timedOut.arm(count);
  begun = clock();
  timeout = seconds;
  const kept = [];
  for (let value = 0; value < count; value++) {
    const mailbox = new Mailbox();
    start(() => run(mailbox, value));
    kept.push(mailbox);
  }
  await timedOut.complete();
  const finished = clock();

  outcome.metric('peak_rss_bytes', peakResidentBytes());
  outcome.metric('finished_s', (finished - begun) / 1e9);
  outcome.check('processes that were started', kept.length, count);
  outcome.check('processes that timed out', timedOut.count, count);
  outcome.check('the sum of their states', timedOut.sum, sumBelow(count));
  outcome.check('processes that timed out early', early.count, 0);
}

async function run(mailbox, value) {
  if ((await mailbox.receiveWithin(timeout)) === undefined) {
    if (clock() - begun < timeout * 1e9) early.add(value);
    timedOut.add(value);
  }
}
