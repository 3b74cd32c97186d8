// `tasks`: tasks share a map, pass messages round a ring, and wait until they time out.
//
// With TASKS_WORKERS in the environment each of so many worker threads has a part of the tasks, one after the other, and
// of the map. A thread asks another for an entry, and passes it a message, by a port; what goes to a port in a turn of
// the event loop goes at once.

import { isMainThread, MessageChannel, parentPort, Worker, workerData } from 'node:worker_threads';

import { clock, peakResidentBytes, residentBytes } from './clock.mjs';
import { Mailbox, start } from './mailbox.mjs';
import { Tally, shareBegin, sumBelow } from './tally.mjs';

const EACH = 4;

/** What the parts tell the driver, each once, in this order. */
const PHASES = ['up', 'spawned', 'ready', 'handled', 'exited'];

export async function tasks({ count, seconds }, outcome) {
  const parts = Number(process.env.TASKS_WORKERS ?? 0);
  const driver = parts > 0 ? startThreads(count, seconds, parts) : startHere(count, seconds);
  await driver.all.up;

  const begun = clock();
  driver.go('start');
  await driver.all.spawned;
  const spawned = clock();
  await driver.all.ready;
  const ready = clock();
  const readyBytes = residentBytes();

  const going = clock();
  driver.go('pass');
  await driver.all.handled;
  const handled = clock();
  const reports = await driver.all.exited;
  const peak = peakResidentBytes();
  const after = residentBytes();

  const late = new Float64Array(count);
  let at = 0;
  for (const report of reports) {
    late.set(report.late, at);
    at += report.late.length;
  }
  late.sort();
  const sum = (name) => reports.reduce((total, report) => total + report[name], 0);
  outcome.metric('spawn_ns', (spawned - begun) / count);
  outcome.metric('ready_ns', (ready - begun) / count);
  outcome.metric('ready_rss_bytes', readyBytes);
  outcome.metric('messages_per_s', (count * EACH * 1e9) / (handled - going));
  outcome.distribution('late', (probability) => late[Math.max(1, Math.ceil(probability * count)) - 1]);
  outcome.metric('peak_rss_bytes', peak);
  outcome.metric('rss_after_bytes', after);
  outcome.check('tasks that were ready', sum('ready'), count);
  outcome.check('entries of the map', sum('entries'), count);
  outcome.check('entries with a wrong value', sum('wrong'), 0);
  outcome.check('tasks that handled all their messages', sum('handled'), count);
  outcome.check('the sum of the messages', sum('messages'), sumBelow(count * EACH));
  outcome.check('messages received in the wrong order', sum('misplaced'), 0);
  outcome.check('tasks that timed out', sum('timedOut'), count);
  outcome.check('tasks that timed out early', sum('early'), 0);
  outcome.check('tasks that exited', sum('exited'), count);
  outcome.check('the sum of their numbers', sum('numbers'), sumBelow(count));
}

/** The driver's promises of what all parts have told. */
function heard(parts) {
  const told = Object.fromEntries(PHASES.map((phase) => [phase, []]));
  const all = {};
  const resolvers = {};
  for (const phase of PHASES) all[phase] = new Promise((resolve) => { resolvers[phase] = resolve; });
  const hear = (phase, part, report) => {
    told[phase][part] = report;
    if (told[phase].filter(() => true).length === parts) resolvers[phase](told[phase]);
  };
  return { all, hear };
}

/** What a part waits for from the driver. */
function orders() {
  const resolvers = {};
  const order = (name) => new Promise((resolve) => { resolvers[name] = resolve; });
  return { start: order('start'), pass: order('pass'), give: (name) => resolvers[name]() };
}

function startHere(count, seconds) {
  const { all, hear } = heard(1);
  const { give, ...wait } = orders();
  start(() => new Part(0, 1, count, seconds, []).run(wait, (phase, report) => hear(phase, 0, report)));
  return { all, go: give };
}

function startThreads(count, seconds, parts) {
  const { all, hear } = heard(parts);
  const ports = Array.from({ length: parts }, () => []);
  for (let one = 0; one < parts; one++) {
    for (let other = 0; other < one; other++) {
      const { port1, port2 } = new MessageChannel();
      ports[one][other] = port1;
      ports[other][one] = port2;
    }
  }
  const threads = ports.map((own, part) => {
    const options = { workerData: { part, parts, count, seconds, ports: own }, transferList: own.filter(Boolean) };
    const thread = new Worker(new URL(import.meta.url), options);
    thread.on('message', ([phase, report]) => hear(phase, part, report));
    thread.on('error', (error) => { throw error; });
    return thread;
  });
  return { all, go: (name) => threads.forEach((thread) => thread.postMessage(name)) };
}

/** A part of the tasks, on one event loop. */
class Part {
  #map = new Map();
  #mailboxes = [];
  /** Resolvers of the tasks that wait for an entry, by the task. */
  #asking = new Map();
  #outboxes;
  #report;
  #tallies = { ready: new Tally(), handled: new Tally(), exited: new Tally() };

  constructor(part, parts, count, seconds, ports) {
    Object.assign(this, { part, parts, count, seconds });
    this.begin = shareBegin(count, part, parts);
    this.own = shareBegin(count, part + 1, parts) - this.begin;
    this.#report = { wrong: 0, misplaced: 0, timedOut: 0, early: 0, late: new Float64Array(this.own).fill(Infinity) };
    this.#outboxes = ports.map((port) => port && new Outbox(port, (message) => this.#receive(message)));
  }

  async run(orders, tell) {
    const { ready, handled, exited } = this.#tallies;
    for (const tally of [ready, handled, exited]) tally.arm(this.own);
    const done = (tally) => (this.own === 0 ? undefined : tally.complete());
    tell('up');
    await orders.start;
    for (let at = 0; at < this.own; at++) {
      const mailbox = new Mailbox();
      this.#mailboxes.push(mailbox);
      start(() => this.#work(this.begin + at, mailbox, orders.pass));
    }
    tell('spawned');
    await done(ready);
    tell('ready');
    await done(handled);
    tell('handled');
    await done(exited);
    for (const [key, value] of this.#map) this.#note(value === valueOf(key));
    tell('exited', {
      ...this.#report, ready: ready.count, entries: this.#map.size, handled: handled.count, messages: handled.sum,
      exited: exited.count, numbers: exited.sum,
    });
  }

  async #work(index, mailbox, pass) {
    const { count, seconds } = this;
    this.#map.set(index, valueOf(index));
    const key = ((index ^ (index >>> 15)) * 0xd6e8feb8) % count;
    const value = await this.#get(key, index);
    this.#note(value === undefined || value === valueOf(key));
    this.#tallies.ready.add(index);
    await pass;

    const next = (index + 1) % count;
    const part = this.#partOf(next);
    for (let number = 0; number < EACH; number++) {
      const item = { from: index, number };
      if (part === this.part) this.#mailboxes[next - this.begin].send(item);
      else this.#outboxes[part].send({ to: next, item });
    }
    let sum = 0;
    for (let due = 0; due < EACH; due++) {
      const { from, number } = await mailbox.receive();
      if ((from + 1) % count !== index || number !== due) this.#report.misplaced += 1;
      sum += from * EACH + number;
    }
    this.#tallies.handled.add(sum);

    const since = clock();
    if ((await mailbox.receiveWithin(seconds)) === undefined) {
      const late = clock() - since - seconds * 1e9;
      if (late < 0) this.#report.early += 1;
      else this.#report.late[index - this.begin] = late;
      this.#report.timedOut += 1;
    }
    this.#tallies.exited.add(index);
  }

  #note(isRight) {
    if (!isRight) this.#report.wrong += 1;
  }

  /** The value of a key, or a promise of it where another thread has the key. */
  #get(key, task) {
    const part = this.#partOf(key);
    if (part === this.part) return this.#map.get(key);
    this.#outboxes[part].send({ key, task, from: this.part });
    return new Promise((resolve) => { this.#asking.set(task, resolve); });
  }

  #receive(message) {
    if (message.item !== undefined) {
      this.#mailboxes[message.to - this.begin].send(message.item);
    } else if (message.key !== undefined) {
      this.#outboxes[message.from].send({ task: message.task, value: this.#map.get(message.key) });
    } else {
      this.#asking.get(message.task)(message.value);
      this.#asking.delete(message.task);
    }
  }

  #partOf(index) {
    return Math.floor(((index + 1) * this.parts - 1) / this.count);
  }
}

/** The messages to another thread. */
class Outbox {
  #port;
  #messages = [];

  constructor(port, receive) {
    this.#port = port;
    port.on('message', (messages) => messages.forEach(receive));
  }

  send(message) {
    if (this.#messages.push(message) === 1) setImmediate(() => this.#flush());
  }

  #flush() {
    this.#port.postMessage(this.#messages);
    this.#messages = [];
  }
}

/** The numbers are whole, also before they are cut. */
function valueOf(key) {
  return (key * 0x9e3779b9) % 0x40000000;
}

if (!isMainThread) {
  const { part, parts, count, seconds, ports } = workerData;
  const { give, ...wait } = orders();
  parentPort.on('message', give);
  start(() => new Part(part, parts, count, seconds, ports)
    .run(wait, (phase, report) => parentPort.postMessage([phase, report])));
}
