package main

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// limit of each wait, so that a lost message cannot hang the benchmark.
const limit = 300 * time.Second

// tally counts goroutines and adds up their values. Only the goroutine that completes the armed count
// wakes the driver.
type tally struct {
	count, sum, armed atomic.Uint64
	done              chan struct{}
}

func newTally() *tally {
	return &tally{done: make(chan struct{}, 1)}
}

// add counts a goroutine and adds its value.
func (t *tally) add(value uint64) {
	t.sum.Add(value)
	if t.count.Add(1) == t.armed.Load() {
		t.done <- struct{}{}
	}
}

// arm sets the count that the next complete waits for, before any message that could complete it is sent.
func (t *tally) arm(count uint64) {
	t.armed.Store(count)
}

// complete waits until the armed count is reached. The workload checks the count, so the end of the time
// shows as a failed check.
func (t *tally) complete() {
	t.completeWithin(limit)
}

func (t *tally) completeWithin(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-t.done:
	case <-timer.C:
	}
}

// sumBelow returns 0 + 1 + … + (count − 1) modulo 2⁶⁴.
func sumBelow(count uint64) uint64 {
	if count%2 == 0 {
		return count / 2 * (count - 1)
	}
	return (count - 1) / 2 * count
}

// least returns the smaller of two numbers.
func least(a, b uint64) uint64 {
	if a < b {
		return a
	}
	return b
}

// share returns the numbers that a part gets of those below count; the sizes of two shares differ by at
// most one.
func share(count, part, parts uint64) (begin, end uint64) {
	return divided(count, part, parts), divided(count, part+1, parts)
}

// divided returns count × part / parts.
func divided(count, part, parts uint64) uint64 {
	high, low := bits.Mul64(count, part)
	quotient, _ := bits.Div64(high, low, parts)
	return quotient
}

// each returns a duration in nanoseconds divided by a number of operations.
func each(elapsed time.Duration, count uint64) float64 {
	return float64(elapsed.Nanoseconds()) / float64(count)
}
