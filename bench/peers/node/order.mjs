// The order in which a process must receive its numbers: each greater than the one before by a step.

let misplaced = 0;

export class Order {
  #due;
  #step;

  constructor(first, step) {
    this.#due = first;
    this.#step = step;
  }

  /** Notes a number that was received; returns the number that must be received next. */
  note(value) {
    if (value !== this.#due) misplaced += 1;
    this.#due = value + this.#step;
    return this.#due;
  }

  static check(outcome) {
    outcome.check('messages received in the wrong order', misplaced, 0);
  }
}
