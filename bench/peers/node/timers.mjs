// `timers`: a process starts timers to itself with setTimeout, and clears all but every hundredth.
//
// setTimeout counts whole milliseconds of a clock that the event loop reads once per turn. So a timer may run
// up to a millisecond before it is due by an exact clock, and before what its turn had done when it was set. Such a
// timer counts as on time; one that is earlier by more than TICK is early.

import { clock, residentBytes } from './clock.mjs';

/** Timers that the process starts or clears in a turn of the event loop; the last of them is not cleared. */
const SLICE = 100;
/** Shortest delay of a timer that fires, in milliseconds. */
const SHORTEST = 100;
/** Time that a cleared timer has to fire after it was due, at the end of the run, in milliseconds. */
const GRACE = 20;
/** Nanoseconds by which setTimeout may be early, with what a turn had done before. */
const TICK = 2e6;
/** Limit of the wait for timers, in milliseconds. */
const LIMIT = 300_000;

export async function timers({ count, live, seconds, longest }, outcome) {
  const fires = Math.floor(count / SLICE);
  const round = Math.min(live, count);
  const due = new Float64Array(fires);
  const late = new Float64Array(fires).fill(-1);
  const armed = new Array(round).fill(null);
  let [fired, sum, again, early, stray] = [0, 0, 0, 0, 0];

  const fire = (number) => {
    if (number % SLICE !== SLICE - 1) {
      stray += 1;
      return;
    }
    const k = Math.floor(number / SLICE);
    const after = clock() - due[k];
    if (after < -TICK) early += 1;
    else if (late[k] >= 0) again += 1;
    else late[k] = Math.max(0, after);
    fired += 1;
    sum += number;
  };
  const start = (number) => {
    const delay = SHORTEST + ((Math.floor(number / SLICE) * 607) % (Math.max(0, longest - SHORTEST) + 1));
    due[Math.floor(number / SLICE)] = clock() + delay * 1e6;
    setTimeout(fire, delay, number);
  };

  const before = residentBytes();
  let [resident, startNs, cancelNs, started] = [0, 0, 0, 0];
  while (started < count) {
    const end = Math.min(started + round, count);
    let arms = 0;
    const starting = clock();
    while (started < end) {
      for (const last = Math.min(started + SLICE, end); started < last; started++) {
        if (started % SLICE === SLICE - 1) start(started);
        else armed[arms++] = setTimeout(fire, seconds * 1000, started);
      }
      await turn();
    }
    startNs += clock() - starting;
    resident ||= residentBytes();
    const cancelling = clock();
    for (let at = 0; at < arms;) {
      for (const last = Math.min(at + SLICE, arms); at < last; at++) clearTimeout(armed[at]);
      await turn();
    }
    cancelNs += clock() - cancelling;
  }
  await new Promise((resolve) => { setTimeout(resolve, longest + GRACE); });
  for (const end = clock() + LIMIT * 1e6; fired < fires && clock() < end;) await turn();

  let sumDue = 0;
  for (let k = 0; k < fires; k++) sumDue += k * SLICE + SLICE - 1;
  const sorted = late.filter((after) => after >= 0).sort();
  const at = (quantile) => sorted[Math.floor(quantile * (sorted.length - 1))] ?? 0;
  outcome.metric('start_ns', startNs / count);
  outcome.metric('cancel_ns', cancelNs / Math.max(1, count - fires));
  outcome.distribution('late', at);
  outcome.metric('bytes_per_timer', Math.max(0, resident - before) / round);
  outcome.check('timers that fired', fired, fires);
  outcome.check('the sum of their numbers', sum, sumDue);
  outcome.check('timers that fired again', again, 0);
  outcome.check('timers that fired early', early, 0);
  outcome.check('timers that fired though cancelled', stray, 0);
}

/** Waits for the next turn of the event loop. */
function turn() {
  return new Promise((resolve) => { setImmediate(resolve); });
}
