package main

import "time"

// selective: a process waits for answers while items wait. A goroutine that waits for one sort of message receives from
// the channel of that sort.
func selective(given settings, result *outcome) error {
	keys, err := given.numbers("depth")
	if err != nil {
		return err
	}
	depth := keys[0]
	items, questions := make(chan uint64, depth), make(chan uint64, 1)
	answers, start := make(chan uint64, 1), make(chan struct{})
	done := newTally()
	done.arm(1)
	var asked, received time.Duration
	misplaced := uint64(0)
	go func() {
		for value := range questions {
			answers <- value + 1
		}
	}()
	go func() {
		<-start
		total := uint64(0)
		clock := time.Now()
		for value := uint64(0); value < given.count; value++ {
			questions <- value
			total += <-answers
		}
		asked = time.Since(clock)
		clock = time.Now()
		for due := uint64(0); due < depth; due++ {
			if <-items != due {
				misplaced++
			}
		}
		received = time.Since(clock)
		done.add(total)
	}()
	for number := uint64(0); number < depth; number++ {
		items <- number
	}
	close(start)
	done.complete()

	result.metric("round_trip_ns", each(asked, given.count))
	result.metric("item_ns", each(received, depth))
	result.check("askers that finished", done.count.Load(), 1)
	result.check("the sum of the answers", done.sum.Load(), sumBelow(given.count+1))
	result.check("messages received in the wrong order", misplaced, 0)
	return nil
}
