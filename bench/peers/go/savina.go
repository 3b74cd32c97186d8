package main

// Parts that the workloads of Savina share. The function savinaW does the steps of
// src/workloads/savina/W.rs. Its first actor starts all others. Channels have places for all messages that can be
// under way, where actors that wait for each other's places would stop for ever.

import "time"

// measure runs the first actor until it returns its report, and records the time.
func measure[R any](result *outcome, first func() R) (report R) {
	reports := make(chan R, 1)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	clock := time.Now()
	go func() { reports <- first() }()
	select {
	case report = <-reports:
	case <-timer.C:
		result.check("reports of the first actor", 0, 1)
	}
	result.metric("wall_s", time.Since(clock).Seconds())
	return report
}

// random is Savina's generator of numbers below 65536.
type random uint32

// randomOf returns the generator of the actor with an index.
func randomOf(index uint64) random {
	return random(index + 1)
}

func (r *random) next() uint64 {
	*r = (*r*1309 + 13849) & 65535
	return uint64(*r)
}

func (r *random) below(bound uint64) uint64 {
	return r.next() % bound
}

// advance draws some numbers and returns the last.
func (r *random) advance(steps uint64) uint64 {
	for ; steps > 0; steps-- {
		r.next()
	}
	return uint64(*r)
}

// busy keeps its thread for some steps of a generator. It is not inlined, or else the compiler would leave out a
// number that nobody uses.
//
//go:noinline
func busy(steps uint64) uint64 {
	draw := randomOf(0)
	return draw.advance(steps)
}

// wrong returns 1 if a number is not the expected one, otherwise 0.
func wrong(found, expected uint64) uint64 {
	if found != expected {
		return 1
	}
	return 0
}
