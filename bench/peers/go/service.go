package main

import (
	"math"
	"math/bits"
	"sort"
	"time"
)

// queue is the number of requests that fit into the mailbox of a service.
const queue = 16

// request is a call: a number, and the channel for its reply.
type request struct {
	value uint64
	reply chan<- uint64
}

// service is the mailbox of a process that is called.
type service chan request

// ask calls a service. Each call has a channel of its own, with room for the reply, so that a service never
// waits for its caller, and no reply can be mistaken for that of another call.
func (s service) ask(value uint64) uint64 {
	reply := make(chan uint64, 1)
	s <- request{value, reply}
	return <-reply
}

// startSuccessor starts a process that replies with the number that follows.
func startSuccessor() service {
	mailbox := make(service, queue)
	go func() {
		for request := range mailbox {
			request.reply <- request.value + 1
		}
	}()
	return mailbox
}

// right returns 1 if a reply is that of a successor, otherwise 0.
func right(reply, value uint64) uint64 {
	if reply == value+1 {
		return 1
	}
	return 0
}

// startSuccessors starts services and calls each once; returns also the number of correct replies.
func startSuccessors(count uint64) (callees []service, replies uint64) {
	callees = make([]service, count)
	for i := range callees {
		callees[i] = startSuccessor()
		replies += right(callees[i].ask(uint64(i)), uint64(i))
	}
	return callees, replies
}

// call: a process calls one service or random ones of several.
func call(given settings, result *outcome) error {
	keys, err := given.numbers("callees", "samples")
	if err != nil {
		return err
	}
	calleeCount, samples := keys[0], keys[1]
	callees, replies := startSuccessors(calleeCount)
	next := pick{state: 0x9E37_79B9_7F4A_7C15, bound: calleeCount}

	clock := time.Now()
	for value := uint64(0); value < given.count; value++ {
		replies += right(callees[next.index()].ask(value), value)
	}
	elapsed := time.Since(clock)
	latencies := make([]int64, 0, samples)
	for value := uint64(0); value < samples; value++ {
		callee := callees[next.index()]
		clock := time.Now()
		reply := callee.ask(value)
		latencies = append(latencies, int64(time.Since(clock)))
		replies += right(reply, value)
	}

	result.metric("round_trip_ns", each(elapsed, given.count))
	percentiles(latencies, result)
	result.check("correct replies", replies, calleeCount+given.count+samples)
	return nil
}

// calls: many processes call at once, caller i the callee i modulo the number of callees.
func calls(given settings, result *outcome) error {
	keys, err := given.numbers("callers", "callees", "samples")
	if err != nil {
		return err
	}
	callers, calleeCount, samples := keys[0], keys[1], keys[2]
	callees, replies := startSuccessors(calleeCount)
	done := newTally()

	done.arm(callers)
	clock := time.Now()
	for caller := uint64(0); caller < callers; caller++ {
		begin, end := share(given.count, caller, callers)
		callee := callees[caller%calleeCount]
		go func() {
			correct := uint64(0)
			for value := begin; value < end; value++ {
				correct += right(callee.ask(value), value)
			}
			done.add(correct)
		}()
	}
	done.complete()
	elapsed := time.Since(clock)

	done.arm(2 * callers)
	timed := make(chan []int64, callers)
	for caller := uint64(0); caller < callers; caller++ {
		begin, end := share(samples, caller, callers)
		callee := callees[caller%calleeCount]
		go func() {
			correct := uint64(0)
			latencies := make([]int64, 0, end-begin)
			for value := begin; value < end; value++ {
				clock := time.Now()
				reply := callee.ask(value)
				latencies = append(latencies, int64(time.Since(clock)))
				correct += right(reply, value)
			}
			timed <- latencies
			done.add(correct)
		}()
	}
	done.complete()
	latencies := make([]int64, 0, samples)
	for len(timed) > 0 {
		latencies = append(latencies, <-timed...)
	}

	result.metric("round_trip_ns", each(elapsed, given.count))
	percentiles(latencies, result)
	result.check("callers that finished, in two rounds", done.count.Load(), 2*callers)
	result.check("correct replies", replies+done.sum.Load(), calleeCount+given.count+samples)
	result.check("calls that were timed separately", uint64(len(latencies)), samples)
	return nil
}

// churn: a process is started, called once, and ends because its mailbox is closed.
func churn(given settings, result *outcome) error {
	keys, err := given.numbers("warmup")
	if err != nil {
		return err
	}
	warmup := keys[0]
	cycles := warmup + given.count
	exited := newTally()
	replies := cycleAll(0, warmup, exited)
	before, err := residentBytes()
	if err != nil {
		return err
	}

	clock := time.Now()
	replies += cycleAll(warmup, cycles, exited)
	elapsed := time.Since(clock)
	after, err := residentBytes()
	if err != nil {
		return err
	}

	result.metric("cycle_ns", each(elapsed, given.count))
	result.metric("rss_growth_bytes", growth(before, after))
	result.check("correct replies", replies, cycles)
	result.check("processes that exited", exited.count.Load(), cycles)
	result.check("the sum of their states", exited.sum.Load(), sumBelow(cycles))
	return nil
}

// cycleAll runs a cycle for each value, and waits for the exits; returns the number of correct replies.
func cycleAll(begin, end uint64, exited *tally) uint64 {
	replies := uint64(0)
	exited.arm(end)
	for state := begin; state < end; state++ {
		mailbox := make(service, 1)
		go func(state uint64) {
			for request := range mailbox {
				request.reply <- state + request.value
			}
			exited.add(state)
		}(state)
		replies += right(mailbox.ask(1), state)
		close(mailbox)
	}
	exited.complete()
	return replies
}

// pick chooses random indices below a bound: xorshift64* with a fixed seed, as in the Rust runtimes.
type pick struct {
	state, bound uint64
}

func (p *pick) index() uint64 {
	p.state ^= p.state >> 12
	p.state ^= p.state << 25
	p.state ^= p.state >> 27
	high, _ := bits.Mul64(p.state*0x2545_F491_4F6C_DD1D, p.bound)
	return high
}

// percentiles records those of latencies in nanoseconds.
func percentiles(latencies []int64, result *outcome) {
	sort.Slice(latencies, func(i, j int) bool { return latencies[i] < latencies[j] })
	at := func(probability float64) float64 {
		if len(latencies) == 0 {
			return 0
		}
		return float64(latencies[rank(probability, len(latencies))])
	}
	result.distribution("latency", at)
}

// rank returns the index of a quantile among sorted values.
func rank(probability float64, values int) int {
	return max(1, int(math.Ceil(probability*float64(values)))) - 1
}
