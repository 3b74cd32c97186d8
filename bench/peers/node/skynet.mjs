// `skynet`: a tree of processes, ten children to each; each process returns the sum of its leaves, and its
// parent awaits the promises of its children.

import { clock } from './clock.mjs';
import { shareBegin, sumBelow } from './tally.mjs';

export async function skynet({ count }, outcome) {
  const begun = clock();
  const sum = await tree(0, count);
  const elapsed = clock() - begun;
  outcome.metric('wall_s', elapsed / 1e9);
  outcome.check('the sum', sum, sumBelow(count));
}

async function tree(begin, end) {
  const count = end - begin;
  if (count === 1) return begin;
  const parts = Math.min(count, 10);
  const children = [];
  for (let part = 0; part < parts; part++) {
    children.push(tree(begin + shareBegin(count, part, parts), begin + shareBegin(count, part + 1, parts)));
  }
  const sums = await Promise.all(children);
  return sums.reduce((sum, part) => sum + part, 0);
}
