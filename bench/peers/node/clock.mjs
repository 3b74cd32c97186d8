// The clock, and resident memory as the kernel reports it.

import { readFileSync } from 'node:fs';

/** Nanoseconds of the monotonic clock. */
export function clock() {
  return performance.now() * 1e6;
}

export function residentBytes() {
  return kibibytes('/proc/self/smaps_rollup', 'Rss:') * 1024;
}

export function peakResidentBytes() {
  return kibibytes('/proc/self/status', 'VmHWM:') * 1024;
}

/** Waits for some seconds. */
export function pause(seconds) {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}

function kibibytes(path, field) {
  const line = readFileSync(path, 'utf8').split('\n').find((line) => line.startsWith(field));
  return Number(line.slice(field.length).replace('kB', ''));
}
