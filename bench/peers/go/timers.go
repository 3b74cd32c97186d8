package main

import (
	"errors"
	"sort"
	"time"
)

const (
	// slice is the number of timers that the process starts or cancels on a message; the last of them is
	// not cancelled.
	slice = 100
	// shortest delay of a timer that fires, in milliseconds.
	shortest = 100
	// grace is the time that a cancelled timer has to fire after it was due, at the end of the run.
	grace = 20 * time.Millisecond
	// next is the message on which the process starts or cancels some timers; any other is the number of
	// a timer that has fired.
	next = ^uint64(0)
)

// timing is the state of the process with the timers, and what it has found.
type timing struct {
	count, live, longest uint64
	timeout              time.Duration
	mailbox              chan uint64
	begun                time.Time
	armed                []*time.Timer
	due, late            []time.Duration
	started, cancelled   uint64
	start, cancel        time.Duration
	before, after        uint64
	fired, sum           uint64
	again, early, stray  uint64
}

// timers: a process starts timers to itself with time.AfterFunc, whose functions send it their numbers, and
// stops all but every hundredth.
func timers(given settings, result *outcome) error {
	count := given.count
	keys, err := given.numbers("live", "seconds", "longest")
	if err != nil {
		return err
	}
	fires := count / slice
	t := &timing{
		count: count, live: least(keys[0], count), longest: keys[2],
		timeout: time.Duration(keys[1]) * time.Second,
		// There is room for all that may fire, and for the process's message to itself.
		mailbox: make(chan uint64, fires+1),
		due:     make([]time.Duration, fires), late: make([]time.Duration, fires),
	}
	for i := range t.late {
		t.late[i] = -1
	}
	t.armed = make([]*time.Timer, t.live)
	for i := range t.armed {
		t.armed[i] = nil
	}
	done := make(chan error, 1)
	t.begun = time.Now()
	go t.run(done)
	if err := <-done; err != nil {
		return err
	}

	var latenesses []time.Duration
	for _, late := range t.late {
		if late >= 0 {
			latenesses = append(latenesses, late)
		}
	}
	sort.Slice(latenesses, func(a, b int) bool { return latenesses[a] < latenesses[b] })
	at := func(quantile float64) float64 {
		if len(latenesses) == 0 {
			return 0
		}
		return float64(latenesses[rank(quantile, len(latenesses))].Nanoseconds())
	}
	cancels := count - fires
	var due uint64
	for k := uint64(0); k < fires; k++ {
		due += k*slice + slice - 1
	}
	result.metric("start_ns", each(t.start, count))
	result.metric("cancel_ns", each(t.cancel, cancels))
	result.distribution("late", at)
	result.metric("bytes_per_timer", growth(t.before, t.after)/float64(t.live))
	result.check("timers that fired", t.fired, fires)
	result.check("the sum of their numbers", t.sum, due)
	result.check("timers that fired again", t.again, 0)
	result.check("timers that fired early", t.early, 0)
	result.check("timers that were cancelled", t.cancelled, cancels)
	result.check("timers that fired though cancelled", t.stray, 0)
	return nil
}

func (t *timing) run(done chan<- error) {
	var err error
	if t.before, err = residentBytes(); err != nil {
		done <- err
		return
	}
	for t.started < t.count {
		end := least(t.started+t.live, t.count)
		var armed uint64
		clock := time.Now()
		for t.started < end {
			armed = t.startSome(least(t.started+slice, end), armed)
			t.handle(next)
		}
		t.start += time.Since(clock)
		if t.after == 0 {
			if t.after, err = residentBytes(); err != nil {
				done <- err
				return
			}
		}
		clock = time.Now()
		for at := uint64(0); at < armed; {
			end := least(at+slice, armed)
			for ; at < end; at++ {
				if t.armed[at].Stop() {
					t.cancelled++
				}
			}
			t.handle(next)
		}
		t.cancel += time.Since(clock)
	}
	over := time.NewTimer(time.Duration(t.longest)*time.Millisecond + grace)
	for isOver := false; !isOver; {
		select {
		case number := <-t.mailbox:
			t.fire(number)
		case <-over.C:
			isOver = true
		}
	}
	limit := time.NewTimer(limit)
	for t.fired < t.count/slice {
		select {
		case number := <-t.mailbox:
			t.fire(number)
		case <-limit.C:
			done <- errors.New("timers did not fire")
			return
		}
	}
	done <- nil
}

// startSome starts timers below a number, and returns how many of the round are to be cancelled.
func (t *timing) startSome(end, armed uint64) uint64 {
	for ; t.started < end; t.started++ {
		number := t.started
		send := func() { t.mailbox <- number }
		if number%slice != slice-1 {
			t.armed[armed] = time.AfterFunc(t.timeout, send)
			armed++
			continue
		}
		k := number / slice
		milliseconds := uint64(shortest)
		if t.longest > shortest {
			milliseconds += k * 607 % (t.longest - shortest + 1)
		}
		delay := time.Duration(milliseconds) * time.Millisecond
		t.due[k] = time.Since(t.begun) + delay
		time.AfterFunc(delay, send)
	}
	return armed
}

// handle sends the process a message, and handles all until this one.
func (t *timing) handle(message uint64) {
	t.mailbox <- message
	for number := range t.mailbox {
		if number == message {
			return
		}
		t.fire(number)
	}
}

// fire notes a timer that has fired.
func (t *timing) fire(number uint64) {
	if number%slice != slice-1 {
		t.stray++
		return
	}
	k := number / slice
	late := time.Since(t.begun) - t.due[k]
	switch {
	case late < 0:
		t.early++
	case t.late[k] >= 0:
		t.again++
	default:
		t.late[k] = late
	}
	t.fired++
	t.sum += number
}
