// The steps and checks of `workflow`: see bench/src/workloads/workflow.rs.
package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// stepNames are the names of the steps of a run.
var stepNames = [...]string{"check", "charge", "pack", "ship", "tell"}

const (
	steps = uint64(len(stepNames))
	// sampleMost is the number of runs whose results are read again, and readers that of the tasks that read them.
	sampleMost, readers = 10_000, 1_000
)

// engine runs workflows, each of which has a number.
type engine interface {
	// run starts a run, and returns its result.
	run(number uint64) (uint64, error)
	// read returns the result of a run that has ended.
	read(number uint64) (uint64, error)
	// close ends the workers and the server.
	close() error
}

// open starts the server and the workers of a row.
func open(place *home, p *plan) (engine, error) {
	if place.row == "restate" {
		return openRestate(place, p)
	}
	return openTemporal(place, p)
}

// plan has the numbers of a run of the benchmark.
type plan struct {
	inflight     uint64
	steps, right atomic.Uint64
	mutex        sync.Mutex
	latencies    []time.Duration
}

// step carries out a step of a run, given by its place.
func (p *plan) step(input, place uint64) uint64 {
	p.steps.Add(1)
	return input + place
}

// check compares a result with that of a run with this input.
func (p *plan) check(input, found uint64) {
	if found == steps*input+steps*(steps-1)/2 {
		p.right.Add(1)
	}
}

// workflowID returns the id of a run: twenty digits.
func workflowID(number uint64) string {
	return fmt.Sprintf("%020d", number)
}

// inTurn has tasks do the work on each number, pace numbers a second in all unless that is 0. Each task takes the next
// number when it is done with the last.
func inTurn(first, end, tasks, pace uint64, work func(number uint64) error) error {
	begun := time.Now()
	var next atomic.Uint64
	next.Store(first)
	task := func() error {
		for {
			number := next.Add(1) - 1
			if number >= end {
				return nil
			}
			if pace > 0 {
				time.Sleep(time.Duration((number-first)*uint64(time.Second)/pace) - time.Since(begun))
			}
			if err := work(number); err != nil {
				next.Store(end)
				return fmt.Errorf("run %d: %w", number, err)
			}
		}
	}
	ends := make(chan error)
	tasks = min(tasks, end-first)
	for range tasks {
		go func() { ends <- task() }()
	}
	var failed error
	for range tasks {
		if err := <-ends; err != nil {
			failed = err
		}
	}
	return failed
}

// makeRuns makes runs, pace a second in all unless that is 0, and notes their times then.
func (p *plan) makeRuns(on engine, first, end, pace uint64) error {
	return inTurn(first, end, p.inflight, pace, func(number uint64) error {
		begun := time.Now()
		found, err := on.run(number)
		p.check(number, found)
		if elapsed := time.Since(begun); pace > 0 {
			p.mutex.Lock()
			p.latencies = append(p.latencies, elapsed)
			p.mutex.Unlock()
		}
		return err
	})
}

// whileOpen opens the row's engine for the time of some work.
func (p *plan) whileOpen(place *home, work func(engine) error) error {
	on, err := open(place, p)
	if err != nil {
		return err
	}
	err = work(on)
	if closed := on.close(); err == nil {
		err = closed
	}
	return err
}

func measure(place *home, numbers map[string]uint64) (*outcome, error) {
	count, runs := numbers["--count"], numbers["--count"]+numbers["paced"]
	p := &plan{inflight: numbers["inflight"]}
	var elapsed time.Duration
	err := p.whileOpen(place, func(on engine) error {
		clock := time.Now()
		err := p.makeRuns(on, 0, count, 0)
		elapsed = time.Since(clock)
		if err != nil {
			return err
		}
		return p.makeRuns(on, count, runs, numbers["pace"])
	})
	if err != nil {
		return nil, err
	}
	right, sample := p.right.Swap(0), min(sampleMost, runs)
	err = p.whileOpen(place, func(on engine) error {
		return inTurn(0, sample, readers, 0, func(number uint64) error {
			number = number * runs / sample
			found, err := on.read(number)
			p.check(number, found)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	perSecond := float(float64(count) / elapsed.Seconds())
	result := &outcome{
		Version:   place.version,
		Workers:   runtime.GOMAXPROCS(0),
		Metrics:   map[string]float{"steps_per_s": float(steps) * perSecond, "runs_per_s": perSecond},
		Failures:  []string{},
		Quantiles: map[string][]float{},
	}
	result.check("right results", right, runs)
	result.check("right results when opened again", p.right.Load(), sample)
	result.check("steps", p.steps.Load(), steps*runs)
	result.latencies(p.latencies)
	return result, nil
}
