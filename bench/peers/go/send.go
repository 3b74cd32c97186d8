package main

import (
	"sync/atomic"
	"time"
)

// backlog is the number of messages that a receiver may be behind before a sender waits.
const backlog = 1024

// send: the receiver adds up numbers until its mailbox is closed, and then replies with the sum.
func send(given settings, result *outcome) error {
	count := given.count
	keys, err := given.numbers("senders")
	if err != nil {
		return err
	}
	senders := keys[0]
	mailbox := make(chan uint64, backlog)
	sums := make(chan uint64, 1)
	go func() {
		sum := uint64(0)
		for value := range mailbox {
			sum += value
		}
		sums <- sum
	}()
	var lastDone atomic.Int64
	done := newTally()
	done.arm(senders)

	clock := time.Now()
	for sender := uint64(0); sender < senders; sender++ {
		begin, end := share(count, sender, senders)
		go func() {
			for value := begin; value < end; value++ {
				mailbox <- value
			}
			raise(&lastDone, int64(time.Since(clock)))
			done.add(end - begin)
		}()
	}
	done.complete()
	close(mailbox)
	sum := <-sums
	delivered := time.Since(clock)

	result.metric("send_ns", each(time.Duration(lastDone.Load()), count))
	result.metric("delivered_ns", each(delivered, count))
	result.check("the sum received", sum, sumBelow(count))
	result.check("senders that finished", done.count.Load(), senders)
	result.check("messages sent", done.sum.Load(), count)
	return nil
}

// raise sets a number to the maximum of itself and a value.
func raise(number *atomic.Int64, value int64) {
	for {
		found := number.Load()
		if value <= found || number.CompareAndSwap(found, value) {
			return
		}
	}
}
