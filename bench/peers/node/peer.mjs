// The peer for Node.js and Bun: one event loop.
//
// A process is an async function that awaits its mailbox, an array and a promise; a call is a message
// with the resolver of the promise that the caller awaits. No process is more than what the language
// gives: promises, async functions and timers, as hez2010/async-runtimes-benchmarks-2024 uses them for its
// million tasks.
//
// Class: stackless tasks on one thread, which share a heap and are not preempted. `workers` in the
// result is 1, but in the row node-workers, which divides `tasks` among worker threads. Such a thread is no process
// in this sense: it is an isolate of several MB.
//
// Implements the workloads of bench/src/workloads, in the same order of steps, and prints the line of
// JSON that bench/steps/src/outcome.rs describes:
//
//     node bench/peers/node/peer.mjs pairs --count 1000000 --workers 2 --set pairs=1000
//
// Limits:
// - `skynet` has no mailboxes: a process returns its sum, and its parent awaits the promises of its children.
//   A leaf has nothing to wait for, so it runs within the call that starts it.
// - `fairness` is left out: an await of a mailbox that is not empty does not return to the event loop, so
//   processes that send themselves messages keep every timer from firing.
// - The heap is limited by the engine, in Node to 4 GB at most by default; that suffices for each
//   workload's default count.
// - In `send`, `fan` and `burst` all messages queue up before the first is received, as a sender
//   that does not await keeps the thread.
// - The compiler warms up within the clock.
//
// A tuned row of Node changes flags only: --max-semi-space-size=64 (in MB) gives the collector of young
// objects more room, so that it copies fewer live messages. Bun has no such flag.

import { calls, call } from './calls.mjs';
import { burst, fan } from './collector.mjs';
import { churn } from './churn.mjs';
import { pairs, ring } from './relay.mjs';
import { send } from './send.mjs';
import { sendCost } from './sendcost.mjs';
import { skynet } from './skynet.mjs';
import { sleep } from './sleep.mjs';
import { spawn } from './spawn.mjs';
import { tasks } from './tasks.mjs';
import { timers } from './timers.mjs';

const workloads = {
  spawn, send, 'send-cost': sendCost, call, calls, churn, sleep, pairs, ring, fan, burst, skynet,
  tasks, timers,
};

/** The probabilities of the quantiles that a run reports of each distribution. */
const PROBABILITIES = [0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1];

/** The metrics of a run, and the checks that failed. */
class Outcome {
  metrics = [];
  failures = [];
  quantiles = {};

  /** Records a measured value, in the metric's unit. */
  metric(name, value) {
    // A float has a point, also if its value is whole.
    this.metrics.push(`"${name}":${value.toFixed(6)}`);
  }

  /** Records the values of a distribution at all probabilities. */
  distribution(name, at) {
    this.quantiles[name] = PROBABILITIES.map(at);
  }

  /** Records a failure unless the found number is the expected one. */
  check(name, found, expected) {
    if (found !== expected) this.failures.push(`${name}: ${found} instead of ${expected}`);
  }
}

function parse([workload, ...rest]) {
  const settings = {};
  for (let at = 0; at + 1 < rest.length; at += 2) {
    const [name, value] = rest[at] === '--set' ? rest[at + 1].split('=') : [rest[at].slice(2), rest[at + 1]];
    settings[name] = /^\d+$/.test(value) ? Number(value) : value;
  }
  return { workload, settings };
}

const { workload, settings } = parse(process.argv.slice(2));
if (!Object.hasOwn(workloads, workload)) throw new Error(`no workload ${workload}`);
const outcome = new Outcome();
await workloads[workload](settings, outcome);
const version = globalThis.Bun ? `Bun ${Bun.version}` : `Node ${process.versions.node}`;
const workers = Number(process.env.TASKS_WORKERS ?? 1);
console.log(`{"version":"${version}","workers":${workers},"metrics":{${outcome.metrics.join(',')}},` +
  `"failures":${JSON.stringify(outcome.failures)},"quantiles":${JSON.stringify(outcome.quantiles)}}`);
// A process that waits for a message keeps nothing alive, but a timer of the tally might.
process.exit(0);
