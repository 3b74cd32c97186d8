// The samples of the last five minutes, and the rates between them.
//
// A sample holds counters. Times are the node's own uptimes, so a late message bends no rate. A node that
// was started again begins a new history.

export const SPAN = 300;

export class History {
  #samples = [];

  push(sample) {
    const last = this.last;
    if (last && sample.metrics.uptime_seconds < last.metrics.uptime_seconds) this.#samples = [];
    this.#samples.push(sample);
    while (this.#samples.length > 2 && this.age(this.#samples[0]) > SPAN + 2) this.#samples.shift();
  }

  get last() { return this.#samples.at(-1); }
  get length() { return this.#samples.length; }

  /** Seconds between a sample and the last. */
  age(sample) { return this.last.metrics.uptime_seconds - sample.metrics.uptime_seconds; }

  /** The oldest sample of the last `seconds`. */
  since(seconds) {
    return this.#samples.find((sample) => this.age(sample) <= seconds + 0.5) ?? this.last;
  }

  /** Growth of a counter per second over the last `seconds`; null with a single sample. */
  rate(counter, seconds = 5) {
    const first = this.since(seconds);
    const took = this.age(first);
    return took > 0 ? Math.max(0, counter(this.last) - counter(first)) / took : null;
  }

  /** Growth of one counter per growth of another over the last `seconds`; null if the other has not grown. */
  ratio(counter, other, seconds = 60) {
    const first = this.since(seconds);
    const grown = other(this.last) - other(first);
    return grown > 0 ? (counter(this.last) - counter(first)) / grown : null;
  }

  /** Points `{ age, value }` of a quantity, oldest first. */
  levels(quantity) {
    return this.#samples.map((sample) => ({ age: this.age(sample), value: quantity(sample) }));
  }

  /** Points `{ age, value }` of the rates of a counter, oldest first. */
  rates(counter) {
    return this.#samples.slice(1).map((sample, at) => {
      const before = this.#samples[at];
      const took = sample.metrics.uptime_seconds - before.metrics.uptime_seconds;
      return { age: this.age(sample), value: took > 0 ? Math.max(0, counter(sample) - counter(before)) / took : 0 };
    });
  }

  /** Counts of requests in each bucket over the last `seconds`. */
  requests(seconds = 60) {
    const first = this.since(seconds);
    return this.last.requests.map((count, at) => count - first.requests[at]);
  }
}

/** The time below which a share of the requests stayed, by the ends of the buckets; null without requests. */
export function quantile(counts, bounds, share) {
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all === 0) return null;
  let left = share * all;
  for (const [at, count] of counts.entries()) {
    if (count > 0 && left <= count) {
      const [start, end] = [bounds[at - 1] ?? 0, bounds[at] ?? bounds.at(-1)];
      return start + (end - start) * (left / count);
    }
    left -= count;
  }
  return bounds.at(-1);
}

export const turns = ({ metrics }) => metrics.guest_turns + metrics.workers.reduce((sum, worker) => sum + worker.turns, 0);
export const ready = ({ metrics }) => metrics.injected + metrics.workers.reduce((sum, worker) => sum + worker.queued, 0);
export const requests = (sample) => sample.requests.reduce((sum, count) => sum + count, 0);
