package main

import (
	"math"
	"sort"
	"sync/atomic"
	"time"
)

// taskMessages is the number of messages that each task sends to the next.
const taskMessages = 4

// item is a message round the ring: the task that sent it, and the number among its messages.
type item struct {
	from, number uint64
}

// tasks: goroutines that share a map, pass messages round a ring, and wait until they time out.
func tasks(given settings, result *outcome) error {
	count := given.count
	keys, err := given.numbers("seconds")
	if err != nil {
		return err
	}
	all := &taskRing{
		timeout: time.Duration(keys[0]) * time.Second, mailboxes: make([]chan item, count),
		late: make([]uint32, count), going: make(chan struct{}), entries: newTaskMap(),
		ready: newTally(), handled: newTally(), timedOut: newTally(), exited: newTally(), early: newTally(),
	}
	for i := range all.late {
		all.late[i] = math.MaxUint32
		all.mailboxes[i] = nil
	}

	all.ready.arm(count)
	clock := time.Now()
	for i := range all.mailboxes {
		all.mailboxes[i] = make(chan item, taskMessages)
		go all.work(uint64(i))
	}
	spawned := time.Since(clock)
	all.ready.complete()
	ready := time.Since(clock)
	readyBytes, err := residentBytes()
	if err != nil {
		return err
	}

	all.handled.arm(count)
	all.exited.arm(count)
	clock = time.Now()
	close(all.going)
	all.handled.complete()
	handled := time.Since(clock)
	all.exited.completeWithin(all.timeout + limit)
	peak, err := peakResidentBytes()
	if err != nil {
		return err
	}
	after, err := residentBytes()
	if err != nil {
		return err
	}

	entries := uint64(0)
	wrong := all.wrong.Load()
	all.entries.each(func(key, value uint64) {
		entries++
		if value != valueOf(key) {
			wrong++
		}
	})
	result.metric("spawn_ns", each(spawned, count))
	result.metric("ready_ns", each(ready, count))
	result.metric("ready_rss_bytes", float64(readyBytes))
	result.metric("messages_per_s", float64(count*taskMessages)/handled.Seconds())
	lateness(all.late, result)
	result.metric("peak_rss_bytes", float64(peak))
	result.metric("rss_after_bytes", float64(after))
	result.check("tasks that were ready", all.ready.count.Load(), count)
	result.check("entries of the map", entries, count)
	result.check("entries with a wrong value", wrong, 0)
	result.check("tasks that handled all their messages", all.handled.count.Load(), count)
	result.check("the sum of the messages", all.handled.sum.Load(), sumBelow(count*taskMessages))
	result.check("messages received in the wrong order", all.misplaced.Load(), 0)
	result.check("tasks that timed out", all.timedOut.count.Load(), count)
	result.check("tasks that timed out early", all.early.count.Load(), 0)
	result.check("tasks that exited", all.exited.count.Load(), count)
	result.check("the sum of their numbers", all.exited.sum.Load(), sumBelow(count))
	return nil
}

// taskRing is what all tasks share.
type taskRing struct {
	entries                                 taskMap
	timeout                                 time.Duration
	mailboxes                               []chan item
	late                                    []uint32
	going                                   chan struct{}
	ready, handled, timedOut, exited, early *tally
	misplaced, wrong                        atomic.Uint64
}

func (all *taskRing) work(index uint64) {
	count := uint64(len(all.mailboxes))
	all.entries.put(index, valueOf(index))
	key := keyFor(index, count)
	if value, found := all.entries.get(key); found && value != valueOf(key) {
		all.wrong.Add(1)
	}
	mailbox := all.mailboxes[index]
	all.ready.add(index)
	<-all.going

	next := all.mailboxes[(index+1)%count]
	for number := uint64(0); number < taskMessages; number++ {
		next <- item{index, number}
	}
	sum := uint64(0)
	for due := uint64(0); due < taskMessages; due++ {
		got := <-mailbox
		if (got.from+1)%count != index || got.number != due {
			all.misplaced.Add(1)
		}
		sum += got.from*taskMessages + got.number
	}
	all.handled.add(sum)

	since := time.Now()
	select {
	case <-mailbox:
	case <-time.After(all.timeout):
		if after := time.Since(since) - all.timeout; after < 0 {
			all.early.add(index)
		} else {
			all.late[index] = uint32(after.Microseconds())
		}
		all.timedOut.add(index)
	}
	all.exited.add(index)
}

func valueOf(key uint64) uint64 {
	return key * 0x9E37_79B9_7F4A_7C15 >> 7
}

func keyFor(index, count uint64) uint64 {
	mixed := (index ^ index>>15) * 0xD6E8_FEB8_6659_FD93
	return (mixed ^ mixed>>32) % count
}

// lateness records the percentiles of numbers of microseconds.
func lateness(late []uint32, result *outcome) {
	sort.Slice(late, func(i, j int) bool { return late[i] < late[j] })
	at := func(probability float64) float64 { return 1000 * float64(late[rank(probability, len(late))]) }
	result.distribution("late", at)
}
