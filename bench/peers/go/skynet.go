package main

import "time"

// skynet: a process starts at most ten children, and sends the sum of their leaves to its parent.
func skynet(given settings, result *outcome) error {
	clock := time.Now()
	root := make(chan uint64, 1)
	go tree(root, 0, given.count)
	sum := uint64(0)
	reported := uint64(0)
	select {
	case sum = <-root:
		reported = 1
	case <-time.After(limit):
	}
	elapsed := time.Since(clock)

	result.metric("wall_s", elapsed.Seconds())
	result.check("roots that reported", reported, 1)
	result.check("the sum", sum, sumBelow(given.count))
	return nil
}

// tree reports the sum of some leaves, whose numbers follow each other. The channel has room for the report
// of every child, so that no child waits.
func tree(parent chan<- uint64, begin, end uint64) {
	count := end - begin
	if count == 1 {
		parent <- begin
		return
	}
	parts := least(count, 10)
	reports := make(chan uint64, parts)
	for part := uint64(0); part < parts; part++ {
		first, last := share(count, part, parts)
		go tree(reports, begin+first, begin+last)
	}
	sum := uint64(0)
	for part := uint64(0); part < parts; part++ {
		sum += <-reports
	}
	parent <- sum
}
