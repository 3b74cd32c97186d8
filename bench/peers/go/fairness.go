package main

import (
	"sync/atomic"
	"time"
)

// fairness: flooders send themselves a message on every message, while a process is called now and then.
// A flooder always finds its next message, so only preemption takes it off its thread.
func fairness(given settings, result *outcome) error {
	keys, err := given.numbers("flooders", "pause")
	if err != nil {
		return err
	}
	count, pause := keys[0], time.Duration(keys[1])*time.Millisecond
	running, stopped := newTally(), newTally()
	var stop atomic.Bool
	var misplaced atomic.Uint64
	callee := startSuccessor()
	flooders := make([]chan uint64, count)
	for i := range flooders {
		mailbox := make(chan uint64, 1)
		flooders[i] = mailbox
		go func(index uint64) {
			due := uint64(0)
			for value := range mailbox {
				if value != due {
					misplaced.Add(1)
				}
				due = value + 1
				if value == 0 {
					running.add(index)
				}
				if stop.Load() {
					stopped.add(due)
				} else {
					mailbox <- due
				}
			}
		}(uint64(i))
	}
	latencies := make([]int64, 0, given.count)
	replies := uint64(0)

	running.arm(count)
	stopped.arm(count)
	flooding := time.Now()
	for _, flooder := range flooders {
		flooder <- 0
	}
	running.complete()
	for value := uint64(0); value < given.count; value++ {
		time.Sleep(pause)
		clock := time.Now()
		reply := callee.ask(value)
		latencies = append(latencies, int64(time.Since(clock)))
		replies += right(reply, value)
	}
	stop.Store(true)
	stopped.complete()
	flooded := time.Since(flooding)

	percentiles(latencies, result)
	messages := stopped.sum.Load()
	if messages == 0 {
		messages = 1
	}
	result.metric("message_ns", each(flooded, messages))
	result.check("correct replies", replies, given.count)
	result.check("flooders that ran", running.count.Load(), count)
	result.check("the sum of their numbers", running.sum.Load(), sumBelow(count))
	result.check("flooders that stopped", stopped.count.Load(), count)
	result.check("messages received in the wrong order", misplaced.Load(), 0)
	return nil
}
