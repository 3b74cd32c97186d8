package main

import (
	"fmt"
	"time"
)

// watched is a process that is monitored: it closes done as it ends, and so tells every goroutine that
// waits for it.
type watched struct {
	mailbox chan bool
	done    chan struct{}
}

// watcher is a process that monitors others, once it gets their addresses. It puts down the number of each
// process that has ended.
type watcher struct {
	watch chan []watched
	found []uint64
}

// monitors: processes that end while one watcher waits for the end of all, or each of several. A monitor is
// a goroutine that waits until done is closed, and then sends the number of its process to the watcher:
// the function merge of "Go Concurrency Patterns: Pipelines and cancellation". No reason is told.
func monitors(given settings, result *outcome) error {
	count := given.count
	keys, err := given.numbers("watchers")
	if err != nil {
		return err
	}
	watcherCount := keys[0]
	answered, watching, told := newTally(), newTally(), newTally()
	answered.arm(count)
	processes := make([]watched, count)
	for i := range processes {
		processes[i] = watched{make(chan bool, 1), make(chan struct{})}
		go processes[i].live(answered)
	}
	for _, process := range processes {
		process.mailbox <- true
	}
	answered.complete()
	watchers := make([]*watcher, watcherCount)
	for i := range watchers {
		watchers[i] = &watcher{make(chan []watched), make([]uint64, 0, count)}
		// The memory is resident before.
		for at := range watchers[i].found[:count] {
			watchers[i].found[:count][at] = 1
		}
		go watchers[i].live(count, watching, told)
	}
	before, err := residentBytes()
	if err != nil {
		return err
	}

	watching.arm(watcherCount)
	clock := time.Now()
	for _, watcher := range watchers {
		watcher.watch <- processes
	}
	watching.complete()
	established := time.Since(clock)
	after, err := residentBytes()
	if err != nil {
		return err
	}

	told.arm(watcherCount)
	clock = time.Now()
	for _, process := range processes {
		process.mailbox <- false
	}
	told.complete()
	down := time.Since(clock)
	if told.count.Load() != watcherCount {
		return fmt.Errorf("%d of %d watchers were told of all ends", told.count.Load(), watcherCount)
	}

	all := count * watcherCount
	var once uint64
	for _, watcher := range watchers {
		once += watcher.once(count)
	}
	result.metric("monitor_ns", each(established, all))
	result.metric("down_ns", each(down, all))
	result.metric("bytes_per_monitor", growth(before, after)/float64(all))
	result.check("messages that were answered", answered.count.Load(), count)
	result.check("watchers that made their monitors", watching.count.Load(), watcherCount)
	result.check("processes that each watcher was told of once", once, all)
	return nil
}

// live answers messages until one is false.
func (w watched) live(answered *tally) {
	defer close(w.done)
	for <-w.mailbox {
		answered.add(1)
	}
}

func (w *watcher) live(count uint64, watching, told *tally) {
	ended := make(chan uint64, backlog)
	for i, process := range <-w.watch {
		go func(number uint64, done <-chan struct{}) {
			<-done
			ended <- number
		}(uint64(i), process.done)
	}
	watching.add(1)
	for uint64(len(w.found)) < count {
		w.found = append(w.found, <-ended)
	}
	told.add(1)
}

// once returns how many processes the watcher was told of exactly once.
func (w *watcher) once(count uint64) uint64 {
	times := make([]int, count)
	for _, number := range w.found {
		times[number]++
	}
	var once uint64
	for _, number := range times {
		if number == 1 {
			once++
		}
	}
	return once
}
