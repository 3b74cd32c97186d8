package main

import "time"

// addressBlock is the number of addresses in a block of the driver's memory.
const addressBlock = 1 << 20

// spawn: a process counts itself on each message, and exits when its mailbox is closed.
func spawn(given settings, result *outcome) error {
	count := given.count
	keys, err := given.numbers("chunk")
	if err != nil {
		return err
	}
	chunk := keys[0]
	counted, exited := newTally(), newTally()
	blocks := addresses(count)
	before, err := residentBytes()
	if err != nil {
		return err
	}

	spawning := time.Now()
	value := uint64(0)
	for _, block := range blocks {
		for i := range block {
			mailbox := make(chan struct{}, 1)
			go countItself(value, mailbox, counted, exited)
			block[i] = mailbox
			value++
		}
	}
	spawned := time.Since(spawning)
	due := uint64(0)
	for _, block := range blocks {
		for begin := uint64(0); begin < uint64(len(block)); begin += chunk {
			slice := block[begin:least(begin+chunk, uint64(len(block)))]
			due += uint64(len(slice))
			counted.arm(due)
			for _, mailbox := range slice {
				mailbox <- struct{}{}
			}
			counted.complete()
		}
	}
	ready := time.Since(spawning)
	after, err := residentBytes()
	if err != nil {
		return err
	}

	stopping := time.Now()
	due = 0
	for i, block := range blocks {
		for begin := uint64(0); begin < uint64(len(block)); begin += chunk {
			slice := block[begin:least(begin+chunk, uint64(len(block)))]
			due += uint64(len(slice))
			exited.arm(due)
			for _, mailbox := range slice {
				close(mailbox)
			}
			exited.complete()
		}
		blocks[i] = nil
	}
	stopped := time.Since(stopping)
	peak, err := peakResidentBytes()
	if err != nil {
		return err
	}

	result.metric("spawn_ns", each(spawned, count))
	result.metric("ready_ns", each(ready, count))
	result.metric("bytes_per_process", growth(before, after)/float64(count))
	result.metric("peak_rss_bytes", float64(peak))
	result.metric("exit_ns", each(stopped, count))
	result.check("processes that counted themselves", counted.count.Load(), count)
	result.check("the sum of their states", counted.sum.Load(), sumBelow(count))
	result.check("processes that exited", exited.count.Load(), count)
	result.check("the sum of their last states", exited.sum.Load(), sumBelow(count))
	return nil
}

func countItself(value uint64, mailbox <-chan struct{}, counted, exited *tally) {
	for range mailbox {
		counted.add(value)
	}
	exited.add(value)
}

// addresses returns memory for the addresses of all processes, which is resident before the clock starts.
func addresses(count uint64) [][]chan struct{} {
	var blocks [][]chan struct{}
	for first := uint64(0); first < count; first += addressBlock {
		block := make([]chan struct{}, least(addressBlock, count-first))
		for i := range block {
			block[i] = nil
		}
		blocks = append(blocks, block)
	}
	return blocks
}
