// Counts processes and adds up their values; the process that completes the armed count wakes the driver.

/** Limit of each wait, so that a lost message cannot hang the benchmark. */
const TIMEOUT_MS = 300_000;

export class Tally {
  count = 0;
  sum = 0;
  #armed = Infinity;
  #complete = null;
  #resolve = null;

  add(value) {
    this.sum += value;
    this.count += 1;
    if (this.count === this.#armed) this.#resolve();
  }

  /** Sets the count that the next `complete` waits for; called before it could be completed. */
  arm(count) {
    this.#armed = count;
    this.#complete = new Promise((resolve) => { this.#resolve = resolve; });
  }

  /** Waits until the armed count is reached. After the time limit the check of the count fails. */
  async complete() {
    let timer;
    const timeout = new Promise((resolve) => { timer = setTimeout(resolve, TIMEOUT_MS); });
    await Promise.race([this.#complete, timeout]);
    clearTimeout(timer);
  }
}

/** 0 + 1 + … + (count − 1). */
export function sumBelow(count) {
  return (count * (count - 1)) / 2;
}

/** The first unit of a part, when `count` units are divided among `parts`. */
export function shareBegin(count, part, parts) {
  return Math.floor((count * part) / parts);
}
