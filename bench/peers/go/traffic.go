package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// tasks of a message of traffic.
const (
	add = iota
	compute
	sum
)

// longSteps are the steps of a long handler, some two milliseconds.
const longSteps = 1_000_000

// deskQueue is the number of messages that fit into a mailbox: a million mailboxes are mostly empty.
const deskQueue = 4

type deskRequest struct {
	task  int
	value uint64
	body  []byte
	// reply is nil if nobody wants it.
	reply chan<- uint64
}

// desk is a process of traffic; its state is on the heap, so that the stack stays small.
type desk struct {
	mailbox chan deskRequest
	words   []uint64
	line    net.Conn
}

func (d *desk) total() uint64 {
	total := uint64(0)
	for _, word := range d.words {
		total += word
	}
	return total
}

func (d *desk) handle(request deskRequest) {
	answer := request.value + 1
	switch request.task {
	case sum:
		answer = d.total()
	case compute:
		next := pick{state: request.value | 1, bound: math.MaxUint64}
		for step := 0; step < longSteps; step++ {
			next.index()
		}
		if next.state == 0 {
			answer = 0
		}
	default:
		last := len(request.body) - 1
		if last < 0 || request.body[last] == byte(request.value) {
			d.words[request.value%uint64(len(d.words))] += request.value
		}
		if d.line != nil {
			answer = askServer(d.line, request.value)
		}
	}
	if request.reply != nil {
		request.reply <- answer
	}
}

func (d *desk) run() {
	for request := range d.mailbox {
		d.handle(request)
	}
}

// runUntilIdle restarts a time-out with each message, and ends with it.
func (d *desk) runUntilIdle(idle time.Duration, timedOut *tally, early *atomic.Uint64) {
	timer, last := time.NewTimer(idle), time.Now()
	for {
		select {
		case request := <-d.mailbox:
			d.handle(request)
			last = time.Now()
			if !timer.Stop() {
				<-timer.C
			}
			timer.Reset(idle)
		case <-timer.C:
			if time.Since(last) < idle {
				early.Add(1)
			}
			timedOut.add(d.total())
			return
		}
	}
}

// askServer asks for the next number; a failure is a wrong answer.
func askServer(line net.Conn, value uint64) uint64 {
	var bytes [8]byte
	binary.LittleEndian.PutUint64(bytes[:], value)
	if _, err := line.Write(bytes[:]); err != nil {
		return value
	}
	if _, err := io.ReadFull(line, bytes[:]); err != nil {
		return value
	}
	return binary.LittleEndian.Uint64(bytes[:])
}

// connect starts a goroutine of the server, and returns the other end of its socket.
func connect() (net.Conn, error) {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var lines [2]net.Conn
	for i, end := range ends {
		file := os.NewFile(uintptr(end), "line")
		lines[i], err = net.FileConn(file)
		file.Close()
		if err != nil {
			return nil, err
		}
	}
	go func() {
		var bytes [8]byte
		for {
			if _, err := io.ReadFull(lines[1], bytes[:]); err != nil {
				return
			}
			binary.LittleEndian.PutUint64(bytes[:], binary.LittleEndian.Uint64(bytes[:])+1)
			if _, err := lines[1].Write(bytes[:]); err != nil {
				return
			}
		}
	}()
	return lines[0], nil
}

func (d *desk) ask(task int, value uint64, body []byte) uint64 {
	reply := make(chan uint64, 1)
	d.mailbox <- deskRequest{task, value, body, reply}
	return <-reply
}

// popularity draws a process by Zipf's law, and scatters the ranks.
func popularity(next *pick, processes uint64) uint64 {
	part := float64(next.index()) / (1 << 53)
	rank := uint64(math.Pow(float64(processes+1), part))
	rank = least(processes, rank)
	if rank > 0 {
		rank--
	}
	_, remainder := bits.Div64(0, rank*4_294_967_291, processes)
	return remainder
}

// traffic: clients call processes and send to them, the first ones far more often than the others.
func traffic(given settings, result *outcome) error {
	keys, err := given.numbers("processes", "clients", "calls", "payload", "busy", "idle")
	if err != nil {
		return err
	}
	processes, clients, calls, payload, busy := keys[0], keys[1], keys[2], keys[3], keys[4]
	idle := time.Duration(keys[5]) * time.Second
	words := 8
	if given.keys["state"] == "large" {
		words = 512
	}
	handler := given.keys["handler"]
	timedOut, done, busyDone := newTally(), newTally(), newTally()
	var early, wrong atomic.Uint64
	timedOut.arm(processes)
	open := func() (*desk, error) {
		d := &desk{mailbox: make(chan deskRequest, deskQueue), words: make([]uint64, words)}
		if handler == "socket" {
			if d.line, err = connect(); err != nil {
				return nil, fmt.Errorf("a socket: %w", err)
			}
		}
		if handler == "idle" {
			go d.runUntilIdle(idle, timedOut, &early)
		} else {
			go d.run()
		}
		return d, nil
	}

	desks := make([]*desk, processes)
	before, err := residentBytes()
	if err != nil {
		return err
	}
	clock := time.Now()
	for i := range desks {
		if desks[i], err = open(); err != nil {
			return err
		}
		wrong.Add(1 - right(desks[i].ask(add, uint64(i), nil), uint64(i)))
	}
	started := time.Since(clock)
	after, err := residentBytes()
	if err != nil {
		return err
	}

	type operation struct {
		desk *desk
		call bool
	}
	latencies := make([][]int64, clients)
	work := make([][]operation, clients)
	for client := range work {
		next := pick{state: uint64(client)*0x9E37_79B9_7F4A_7C15 | 1, bound: 1 << 53}
		begin, end := share(given.count, uint64(client), clients)
		work[client] = make([]operation, end-begin)
		for i := range work[client] {
			drawn := desks[popularity(&next, processes)]
			work[client][i] = operation{drawn, next.index()%100 < calls}
		}
	}
	done.arm(clients)
	busyDone.arm(busy)
	var stop atomic.Bool
	clock = time.Now()
	for i := uint64(0); i < busy; i++ {
		d := &desk{mailbox: make(chan deskRequest, deskQueue), words: make([]uint64, 8)}
		go d.run()
		go func() {
			made := uint64(0)
			for ; !stop.Load(); made++ {
				wrong.Add(1 - right(d.ask(compute, made, nil), made))
			}
			busyDone.add(made)
		}()
	}
	for client := uint64(0); client < clients; client++ {
		value, _ := share(given.count, client, clients)
		go func(client, value uint64) {
			times := make([]int64, 0, len(work[client]))
			for _, operation := range work[client] {
				var body []byte
				if payload > 0 {
					body = make([]byte, payload)
					body[payload-1] = byte(value)
				}
				if operation.call {
					clock := time.Now()
					reply := operation.desk.ask(add, value, body)
					times = append(times, int64(time.Since(clock)))
					wrong.Add(1 - right(reply, value))
				} else {
					operation.desk.mailbox <- deskRequest{add, value, body, nil}
				}
				value++
			}
			latencies[client] = times
			done.add(0)
		}(client, value)
	}
	done.complete()
	elapsed := time.Since(clock)
	stop.Store(true)
	if busy > 0 {
		busyDone.complete()
	}
	long := time.Since(clock)

	total := uint64(0)
	if handler == "idle" {
		timedOut.complete()
		total = timedOut.sum.Load()
		result.check("processes that timed out", timedOut.count.Load(), processes)
		result.check("processes that timed out early", early.Load(), 0)
	} else {
		for _, d := range desks {
			total += d.ask(sum, 0, nil)
		}
	}
	all := make([]int64, 0, given.count)
	for _, times := range latencies {
		all = append(all, times...)
	}
	result.metric("start_ns", each(started, processes))
	result.metric("bytes_per_process", growth(before, after)/float64(processes))
	result.metric("operation_ns", each(elapsed, given.count))
	percentiles(all, result)
	if busy > 0 {
		result.metric("long_ns", each(long, busyDone.sum.Load()+1)*float64(busy))
	}
	result.check("clients that finished", done.count.Load(), clients)
	result.check("clients of busy processes that finished", busyDone.count.Load(), busy)
	result.check("wrong replies", wrong.Load(), 0)
	result.check("the sum of all states", total, sumBelow(processes)+sumBelow(given.count))
	return nil
}
