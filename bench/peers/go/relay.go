package main

import (
	"encoding/binary"
	"sync/atomic"
	"time"
)

func pairs(given settings, result *outcome) error {
	keys, err := given.numbers("pairs")
	if err != nil {
		return err
	}
	start := startRing
	if given.keys["message"] == "bytes" {
		start = startByteRing
	}
	elapsed := relay(given.count, keys[0], 2, start, result)
	result.metric("message_ns", each(elapsed, given.count))
	return nil
}

func ring(given settings, result *outcome) error {
	keys, err := given.numbers("processes")
	if err != nil {
		return err
	}
	elapsed := relay(given.count, 1, keys[0], startRing, result)
	result.metric("wall_s", elapsed.Seconds())
	result.metric("hop_ns", each(elapsed, given.count))
	return nil
}

// relay passes count messages through rings of processes, each ring its share. A process adds one to the
// number that it receives, and sends it on. A ring has one message in flight, so no sender waits for room.
func relay(count, rings, size uint64, start starter, result *outcome) time.Duration {
	var misplaced atomic.Uint64
	finished := newTally()
	var firsts []func()
	for i := uint64(0); i < rings; i++ {
		begin, end := share(count, i, rings)
		first := start(size, end-begin, finished, &misplaced)
		// A ring without a share of the messages does not begin.
		if end > begin {
			firsts = append(firsts, first)
		}
	}
	begun := uint64(len(firsts))
	finished.arm(begun)
	clock := time.Now()
	for _, first := range firsts {
		first()
	}
	finished.complete()
	elapsed := time.Since(clock)

	result.check("rings that finished", finished.count.Load(), begun)
	result.check("messages passed on", finished.sum.Load(), count)
	result.check("messages received in the wrong order", misplaced.Load(), 0)
	return elapsed
}

// starter starts the processes of a ring, and returns the sending of the first message.
type starter func(size, messages uint64, finished *tally, misplaced *atomic.Uint64) func()

func startRing(size, messages uint64, finished *tally, misplaced *atomic.Uint64) func() {
	mailboxes := make([]chan uint64, size)
	for place := range mailboxes {
		mailboxes[place] = make(chan uint64, 1)
	}
	for place := range mailboxes {
		due, mailbox, next := uint64(place), mailboxes[place], mailboxes[(place+1)%len(mailboxes)]
		go func() {
			for value := range mailbox {
				if value != due {
					misplaced.Add(1)
				}
				due = value + size
				if value+1 == messages {
					finished.add(messages)
				} else {
					next <- value + 1
				}
			}
		}()
	}
	return func() { mailboxes[0] <- 0 }
}

// startByteRing starts a ring in which each message is a new slice, whose first bytes are the number.
func startByteRing(size, messages uint64, finished *tally, misplaced *atomic.Uint64) func() {
	mailboxes := make([]chan []byte, size)
	for place := range mailboxes {
		mailboxes[place] = make(chan []byte, 1)
	}
	for place := range mailboxes {
		due, mailbox, next := uint64(place), mailboxes[place], mailboxes[(place+1)%len(mailboxes)]
		go func() {
			for message := range mailbox {
				value := binary.LittleEndian.Uint64(message)
				if value != due {
					misplaced.Add(1)
				}
				due = value + size
				if value+1 == messages {
					finished.add(messages)
				} else {
					next <- withNumber(value + 1)
				}
			}
		}()
	}
	return func() { mailboxes[0] <- withNumber(0) }
}

func withNumber(value uint64) []byte {
	bytes := make([]byte, 64)
	binary.LittleEndian.PutUint64(bytes, value)
	return bytes
}
