// `spawn`: live processes with a number each; they count themselves on a message, and exit on another.

import { clock, peakResidentBytes, residentBytes } from './clock.mjs';
import { Mailbox, start } from './mailbox.mjs';
import { Tally, sumBelow } from './tally.mjs';

const COUNT = 1;
const STOP = 2;

/** Addresses in a block of the driver's memory; the driver drops a block once its processes are stopped. */
const ADDRESS_BLOCK = 1 << 20;

const counted = new Tally();
const exited = new Tally();

export async function spawn({ count, chunk }, outcome) {
  const processes = [];
  for (let first = 0; first < count; first += ADDRESS_BLOCK) {
    processes.push(new Array(Math.min(ADDRESS_BLOCK, count - first)).fill(null));
  }
  const residentBefore = residentBytes();

  const spawning = clock();
  let value = 0;
  for (const block of processes) {
    for (let at = 0; at < block.length; at++) block[at] = startProcess(value++);
  }
  const spawned = clock();
  let due = 0;
  for (const block of processes) {
    for (let begin = 0; begin < block.length; begin += chunk) {
      const end = Math.min(begin + chunk, block.length);
      due += end - begin;
      await sendAll(block, begin, end, COUNT, counted, due);
    }
  }
  const ready = clock();
  const resident = residentBytes();

  const stopping = clock();
  due = 0;
  while (processes.length > 0) {
    const block = processes.shift();
    for (let begin = 0; begin < block.length; begin += chunk) {
      const end = Math.min(begin + chunk, block.length);
      due += end - begin;
      await sendAll(block, begin, end, STOP, exited, due);
    }
  }
  const stopped = clock();

  outcome.metric('spawn_ns', (spawned - spawning) / count);
  outcome.metric('ready_ns', (ready - spawning) / count);
  outcome.metric('bytes_per_process', Math.max(0, resident - residentBefore) / count);
  outcome.metric('peak_rss_bytes', peakResidentBytes());
  outcome.metric('exit_ns', (stopped - stopping) / count);
  outcome.check('processes that counted themselves', counted.count, count);
  outcome.check('the sum of their states', counted.sum, sumBelow(count));
  outcome.check('processes that exited', exited.count, count);
  outcome.check('the sum of their last states', exited.sum, sumBelow(count));
}

function startProcess(value) {
  const mailbox = new Mailbox();
  start(() => run(mailbox, value));
  return mailbox;
}

async function run(mailbox, value) {
  while ((await mailbox.receive()) === COUNT) counted.add(value);
  exited.add(value);
}

/** Sends a message to some processes of a block, and waits until all so far have acted on theirs. */
async function sendAll(block, begin, end, message, tally, due) {
  tally.arm(due);
  for (let at = begin; at < end; at++) block[at].send(message);
  await tally.complete();
}
