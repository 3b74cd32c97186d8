package main

import (
	"fmt"
	"syscall"
	"time"
)

// processes: goroutines that wait for one message and end; at most as many as the driver allows.
func processes(given settings, result *outcome) error {
	count := given.count
	keys, err := given.numbers("maximum")
	if err != nil {
		return err
	}
	maximum := keys[0]
	exited := newTally()
	exited.arm(count)
	mailboxes := make([]chan struct{}, count)
	for i := range mailboxes {
		mailboxes[i] = nil
	}

	cpu, err := processorTime()
	if err != nil {
		return err
	}
	clock := time.Now()
	for i := range mailboxes {
		if uint64(i) >= maximum {
			return fmt.Errorf("%d processes requested, %d allowed: number %d was refused", count, maximum, i+1)
		}
		mailbox := make(chan struct{}, 1)
		go func() {
			<-mailbox
			exited.add(1)
		}()
		mailboxes[i] = mailbox
	}
	wall := time.Since(clock)
	cpuAfter, err := processorTime()
	if err != nil {
		return err
	}
	for _, mailbox := range mailboxes {
		mailbox <- struct{}{}
	}
	exited.complete()

	result.metric("wall_ns", each(wall, count))
	result.metric("cpu_ns", each(cpuAfter-cpu, count))
	result.check("processes that exited", exited.count.Load(), count)
	return nil
}

// processorTime returns the processor time of all threads of this program.
func processorTime() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
