package main

import (
	"math"
	"time"
)

const (
	// firstCalls is the number of calls of the first loop.
	firstCalls = 10
	// attempts is how often a loop is made, at most, until it takes half of its length.
	attempts = 3
	// roundBytes is the greatest size of a round's messages, each with messageBytes besides what it carries.
	roundBytes   = 64 << 20
	messageBytes = 64
)

// sourceMs has the lengths of the source's loops after the first, in milliseconds.
var sourceMs = [...]uint64{1, 500, 3000, 10000}

// content says how messages of a type are sent and received.
type content[M any] struct {
	// send sends as many messages, each a copy of the buffer or a number.
	send func(mailbox chan<- M, buffer []byte, count uint64)
	// receive receives messages until the end of a round; returns their number and the sum of their values.
	receive func(mailbox <-chan M) (count, sum uint64)
	// end is the message that ends a round.
	end M
	// sumOf returns the sum of the values of the first messages.
	sumOf func(count, payload uint64) uint64
}

var ofNumbers = content[uint64]{
	send: func(mailbox chan<- uint64, _ []byte, count uint64) {
		for number := uint64(0); number < count; number++ {
			mailbox <- number
		}
	},
	receive: func(mailbox <-chan uint64) (count, sum uint64) {
		for number := range mailbox {
			if number == math.MaxUint64 {
				break
			}
			count++
			sum += number
		}
		return count, sum
	},
	end:   math.MaxUint64,
	sumOf: func(count, _ uint64) uint64 { return sumBelow(count) },
}

var ofBytes = content[[]byte]{
	send: func(mailbox chan<- []byte, buffer []byte, count uint64) {
		for number := uint64(0); number < count; number++ {
			buffer[0] = byte(number)
			buffer[len(buffer)-1] = byte(number)
			mailbox <- append([]byte(nil), buffer...)
		}
	},
	receive: func(mailbox <-chan []byte) (count, sum uint64) {
		for bytes := range mailbox {
			if bytes == nil {
				break
			}
			count++
			sum += uint64(len(bytes)) + uint64(bytes[0]) + uint64(bytes[len(bytes)-1])
		}
		return count, sum
	},
	end: nil,
	sumOf: func(count, payload uint64) uint64 {
		return count*payload + 2*(count/256*sumBelow(256)+sumBelow(count%256))
	},
}

// sendCost: local calls for some time, then messages to another goroutine for as long.
func sendCost(given settings, result *outcome) error {
	keys, err := given.numbers("payload", "depth")
	if err != nil {
		return err
	}
	payload, depth := keys[0], keys[1]
	calls, local, made := uint64(firstCalls), time.Duration(0), uint64(0)
	callAll := func() {
		clock := time.Now()
		made = 0
		for i := uint64(0); i < calls; i++ {
			made = localCall(made)
		}
		local = time.Since(clock)
	}
	callAll()
	for _, length := range lengths(given.count) {
		for attempt := 0; attempt < attempts; attempt++ {
			calls = callsIn(length, calls, local)
			callAll()
			if isLongEnough(local, length) {
				break
			}
		}
	}
	result.metric("local_ns", each(local, calls))
	result.check("local calls", made, calls)
	if payload == 0 {
		sendFor(given.count, payload, depth, ofNumbers, result)
	} else {
		sendFor(given.count, payload, depth, ofBytes, result)
	}
	return nil
}

//go:noinline
func localCall(made uint64) uint64 { return made + 1 }

// lengths returns those of the loops after the first, in milliseconds.
func lengths(longest uint64) []uint64 {
	var found []uint64
	for _, length := range sourceMs {
		if length < longest {
			found = append(found, length)
		}
	}
	return append(found, longest)
}

// callsIn returns the number of calls that take some milliseconds if so many took so long.
func callsIn(milliseconds, calls uint64, took time.Duration) uint64 {
	all := float64(milliseconds) * 1e6 * float64(calls) / math.Max(1, float64(took))
	return uint64(math.Max(1, all))
}

func isLongEnough(took time.Duration, milliseconds uint64) bool {
	return 2*took >= time.Duration(milliseconds)*time.Millisecond
}

// costSender is the driver, which sends, with what its receiver must confirm.
type costSender[M any] struct {
	content[M]
	mailbox   chan M
	confirmed chan [2]uint64
	// release lets the receiver take the messages of a round.
	release chan struct{}
	buffer  []byte
	// count and sum are those of all messages sent; received those that the receiver confirmed.
	count, sum uint64
	received   [2]uint64
}

// sendFor measures the loops that send.
func sendFor[M any](longest, payload, depth uint64, of content[M], result *outcome) {
	sender := costSender[M]{
		content: of,
		// The messages that wait before need room in the channel.
		mailbox:   make(chan M, backlog+depth),
		confirmed: make(chan [2]uint64, 1),
		release:   make(chan struct{}, 1),
		buffer:    make([]byte, payload),
	}
	go sender.receiveAll()
	messages := uint64(firstCalls)
	sent, delivered, complete := sender.sendAll(messages, 0)
	for _, length := range lengths(longest) {
		waiting := uint64(0)
		if length == longest {
			waiting = depth
		}
		for attempt := 0; attempt < attempts && complete; attempt++ {
			messages = callsIn(length, messages, sent)
			sent, delivered, complete = sender.sendAll(messages, waiting)
			if isLongEnough(sent, length) {
				break
			}
		}
	}
	result.metric("send_ns", each(sent, messages))
	result.metric("delivered_ns", each(delivered, messages))
	result.check("messages received", sender.received[0], sender.count)
	result.check("the sum received", sender.received[1], sender.sum)
}

// receiveAll receives the messages of each round after the sender has released it.
func (sender *costSender[M]) receiveAll() {
	for range sender.release {
		count, sum := sender.receive(sender.mailbox)
		sender.confirmed <- [2]uint64{count, sum}
	}
}

// sendAll sends messages in rounds, each to a mailbox in which some messages wait; returns the time of
// sending, the time until all were confirmed, and whether they were.
func (sender *costSender[M]) sendAll(count, waiting uint64) (sent, delivered time.Duration, complete bool) {
	round := uint64(roundBytes) / (uint64(len(sender.buffer)) + messageBytes)
	if round == 0 {
		round = 1
	}
	for left := count; left > 0; {
		now := least(left, round)
		left -= now
		sender.sendMessages(waiting)
		sender.release <- struct{}{}
		clock := time.Now()
		sender.sendMessages(now)
		sent += time.Since(clock)
		sender.mailbox <- sender.end
		select {
		case confirmed := <-sender.confirmed:
			sender.received[0] += confirmed[0]
			sender.received[1] += confirmed[1]
		case <-time.After(limit):
			return sent, delivered, false
		}
		delivered += time.Since(clock)
	}
	return sent, delivered, true
}

func (sender *costSender[M]) sendMessages(count uint64) {
	sender.send(sender.mailbox, sender.buffer, count)
	sender.count += count
	sender.sum += sender.sumOf(count, uint64(len(sender.buffer)))
}
