// `churn`: start a process, call it once, make it exit; in sequence.

import { clock, residentBytes } from './clock.mjs';
import { Service } from './service.mjs';
import { Tally, sumBelow } from './tally.mjs';

const exited = new Tally();

export async function churn({ count, warmup }, outcome) {
  const cycles = warmup + count;
  let replies = await cycleAll(0, warmup);
  const residentBefore = residentBytes();

  const begun = clock();
  replies += await cycleAll(warmup, cycles);
  const elapsed = clock() - begun;
  const resident = residentBytes();

  outcome.metric('cycle_ns', elapsed / count);
  outcome.metric('rss_growth_bytes', Math.max(0, resident - residentBefore));
  outcome.check('correct replies', replies, cycles);
  outcome.check('processes that exited', exited.count, cycles);
  outcome.check('the sum of their states', exited.sum, sumBelow(cycles));
}

/** Runs a cycle for each value, then waits until all processes so far have exited. */
async function cycleAll(begin, end) {
  let replies = 0;
  exited.arm(end);
  for (let value = begin; value < end; value++) {
    const service = new Service(value, exited);
    const reply = await service.call(1);
    service.stop();
    replies += reply === value + 1 ? 1 : 0;
  }
  await exited.complete();
  return replies;
}
