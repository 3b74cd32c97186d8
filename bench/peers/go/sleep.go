package main

import "time"

// sleep: a process waits for a message, gives up after some seconds, and exits.
func sleep(given settings, result *outcome) error {
	count := given.count
	keys, err := given.numbers("seconds")
	if err != nil {
		return err
	}
	timeout := time.Duration(keys[0]) * time.Second
	timedOut, early := newTally(), newTally()
	timedOut.arm(count)

	begun := time.Now()
	mailboxes := make([]chan struct{}, count)
	for i := range mailboxes {
		mailbox := make(chan struct{}, 1)
		mailboxes[i] = mailbox
		go func(value uint64) {
			select {
			case <-mailbox:
			case <-time.After(timeout):
				if time.Since(begun) < timeout {
					early.add(value)
				}
				timedOut.add(value)
			}
		}(uint64(i))
	}
	timedOut.completeWithin(timeout + limit)
	finished := time.Since(begun)
	peak, err := peakResidentBytes()
	if err != nil {
		return err
	}

	result.metric("peak_rss_bytes", float64(peak))
	result.metric("finished_s", finished.Seconds())
	result.check("processes that were started", uint64(len(mailboxes)), count)
	result.check("processes that timed out", timedOut.count.Load(), count)
	result.check("the sum of their states", timedOut.sum.Load(), sumBelow(count))
	result.check("processes that timed out early", early.count.Load(), 0)
	return nil
}
