// `call` and `calls`: a process, or many at once, call a service, and each reply is checked.

import { clock } from './clock.mjs';
import { start } from './mailbox.mjs';
import { Service } from './service.mjs';
import { Tally, shareBegin } from './tally.mjs';

export async function call({ count, samples, callees: calleeCount }, outcome) {
  const callees = startCallees(calleeCount);
  let replies = await callOnce(callees);

  const begun = clock();
  replies += await callAll(() => pick(callees), 0, count);
  const elapsed = clock() - begun;
  const latencies = new Float64Array(samples);
  replies += await sample(() => pick(callees), 0, samples, latencies);

  outcome.metric('round_trip_ns', elapsed / count);
  percentiles(latencies, outcome);
  outcome.check('correct replies', replies, calleeCount + count + samples);
}

export async function calls({ count, samples, callers, callees: calleeCount }, outcome) {
  const callees = startCallees(calleeCount);
  const replies = await callOnce(callees);
  const done = new Tally();
  done.arm(callers);

  const begun = clock();
  for (let caller = 0; caller < callers; caller++) {
    const callee = callees[caller % calleeCount];
    const begin = shareBegin(count, caller, callers);
    const end = shareBegin(count, caller + 1, callers);
    start(async () => {
      done.add(await callAll(() => callee, begin, end));
    });
  }
  await done.complete();
  const elapsed = clock() - begun;

  const latencies = new Float64Array(samples);
  let timed = 0;
  done.arm(2 * callers);
  for (let caller = 0; caller < callers; caller++) {
    const callee = callees[caller % calleeCount];
    const begin = shareBegin(samples, caller, callers);
    const end = shareBegin(samples, caller + 1, callers);
    start(async () => {
      const correct = await sample(() => callee, begin, end, latencies);
      timed += end - begin;
      done.add(correct);
    });
  }
  await done.complete();

  outcome.metric('round_trip_ns', elapsed / count);
  percentiles(latencies, outcome);
  outcome.check('callers that finished, in two rounds', done.count, 2 * callers);
  outcome.check('correct replies', replies + done.sum, calleeCount + count + samples);
  outcome.check('calls that were timed separately', timed, samples);
}

function startCallees(count) {
  return Array.from({ length: count }, () => new Service(1));
}

function callOnce(callees) {
  let index = 0;
  return callAll(() => callees[index++], 0, callees.length);
}

/** A callee at random; with a single callee nothing is drawn. */
function pick(callees) {
  return callees.length === 1 ? callees[0] : callees[Math.floor(Math.random() * callees.length)];
}

/** Calls once with each value; returns the number of correct replies. */
async function callAll(callee, begin, end) {
  let correct = 0;
  for (let value = begin; value < end; value++) {
    const reply = await callee().call(value);
    correct += reply === value + 1 ? 1 : 0;
  }
  return correct;
}

/** Calls once with each value and times each call; returns the number of correct replies. */
async function sample(callee, begin, end, latencies) {
  let correct = 0;
  for (let value = begin; value < end; value++) {
    const to = callee();
    const begun = clock();
    const reply = await to.call(value);
    latencies[value] = clock() - begun;
    correct += reply === value + 1 ? 1 : 0;
  }
  return correct;
}

function percentiles(latencies, outcome) {
  latencies.sort();
  const at = (quantile) => latencies[Math.max(1, Math.ceil(quantile * latencies.length)) - 1];
  outcome.distribution('latency', at);
}
