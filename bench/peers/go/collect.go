package main

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// fan: the numbers go to buffered channels, so the sender waits for a receiver that is behind.
func fan(given settings, result *outcome) error {
	keys, err := given.numbers("receivers", "chunk", "settle")
	if err != nil {
		return err
	}
	all := newChunks(keys[0], keys[1], given.count)
	group := group{chunks: all, reports: newTally()}
	mailboxes := make([]chan uint64, all.receivers)
	for i := range mailboxes {
		mailbox := make(chan uint64, backlog)
		mailboxes[i] = mailbox
		collector := group.collector(i)
		go func() {
			for value := range mailbox {
				collector.receive(value)
			}
		}()
	}
	post := func(receiver int, value uint64) { mailboxes[receiver] <- value }
	next := group.sendChunk(0, post)
	group.reports.complete()

	sent := newTally()
	sent.arm(1)
	clock := time.Now()
	go func() {
		for next < all.total {
			next = group.sendChunk(next, post)
			group.reports.complete()
		}
		sent.add(0)
	}()
	sent.complete()
	elapsed := time.Since(clock)
	time.Sleep(time.Duration(keys[2]) * time.Second)
	after, err := residentBytes()
	if err != nil {
		return err
	}

	result.metric("delivered_ns", each(elapsed, given.count))
	result.metric("rss_after_bytes", float64(after))
	group.check(result)
	return nil
}

// burst: the numbers queue up in mailboxes that grow, until the latch is opened.
func burst(given settings, result *outcome) error {
	keys, err := given.numbers("receivers", "settle")
	if err != nil {
		return err
	}
	all := newChunks(keys[0], 0, given.count)
	group := group{chunks: all, reports: newTally()}
	latch := make(chan struct{})
	mailboxes := make([]*mailbox[uint64], all.receivers)
	for i := range mailboxes {
		mailbox := newMailbox[uint64]()
		mailboxes[i] = mailbox
		collector := group.collector(i)
		go func() {
			// The first number is the only one before the latch, because the sender waits for its receipt.
			collector.receive(mailbox.receiveAll()[0])
			<-latch
			for {
				for _, value := range mailbox.receiveAll() {
					collector.receive(value)
				}
			}
		}()
	}
	post := func(receiver int, value uint64) { mailboxes[receiver].send(value) }
	next := group.sendChunk(0, post)
	group.reports.complete()
	before, err := residentBytes()
	if err != nil {
		return err
	}

	sent := newTally()
	sent.arm(1)
	go func() {
		group.sendChunk(next, post)
		sent.add(0)
	}()
	sent.complete()
	queued, err := residentBytes()
	if err != nil {
		return err
	}
	close(latch)
	group.reports.complete()
	peak, err := peakResidentBytes()
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(keys[1]) * time.Second)
	after, err := residentBytes()
	if err != nil {
		return err
	}

	result.metric("bytes_per_message", growth(before, queued)/float64(given.count))
	result.metric("peak_rss_bytes", float64(peak))
	result.metric("rss_after_bytes", float64(after))
	group.check(result)
	return nil
}

// mailbox is a queue without a bound, from which a receiver takes everything at once.
type mailbox[T any] struct {
	lock   sync.Mutex
	filled sync.Cond
	values []T
}

func newMailbox[T any]() *mailbox[T] {
	m := new(mailbox[T])
	m.filled.L = &m.lock
	return m
}

func (m *mailbox[T]) send(value T) {
	m.lock.Lock()
	m.values = append(m.values, value)
	m.lock.Unlock()
	m.filled.Signal()
}

// receiveAll waits for a value, and takes all values.
func (m *mailbox[T]) receiveAll() []T {
	m.lock.Lock()
	defer m.lock.Unlock()
	for len(m.values) == 0 {
		m.filled.Wait()
	}
	values := m.values
	m.values = nil
	return values
}

// chunks are the parts in which numbers are sent to the receivers: first one number for each receiver,
// then parts that are a multiple of the receivers.
type chunks struct {
	receivers, chunk, total uint64
}

func newChunks(receivers, chunk, count uint64) chunks {
	total := receivers + count
	if chunk == 0 || chunk > math.MaxUint64-receivers {
		return chunks{receivers, total, total}
	}
	return chunks{receivers, (chunk + receivers - 1) / receivers * receivers, total}
}

// end returns the end of the chunk that begins with a number.
func (c chunks) end(begin uint64) uint64 {
	length := c.chunk
	if begin == 0 {
		length = c.receivers
	}
	return least(begin+length, c.total)
}

// group is what all receivers of a workload share. A receiver reports once per chunk.
type group struct {
	chunks
	reports   *tally
	due       uint64
	misplaced atomic.Uint64
}

// collector is the state of a receiver.
type collector struct {
	*group
	next, end, sum uint64
}

func (g *group) collector(receiver int) *collector {
	return &collector{group: g, next: uint64(receiver), end: g.chunks.end(0)}
}

func (c *collector) receive(value uint64) {
	if value != c.next {
		c.misplaced.Add(1)
	}
	c.next = value + c.receivers
	c.sum += value
	if c.next >= c.end {
		c.reports.add(c.sum)
		c.sum = 0
		c.end = c.chunks.end(c.end)
	}
}

// sendChunk sends the chunk that begins with a number, round robin, and returns its end.
func (g *group) sendChunk(begin uint64, post func(receiver int, value uint64)) uint64 {
	end := g.chunks.end(begin)
	// Every chunk begins with the first receiver; the last chunk may not reach all of them.
	g.due += least(g.receivers, end-begin)
	g.reports.arm(g.due)
	receiver := 0
	for value := begin; value < end; value++ {
		post(receiver, value)
		if receiver++; receiver == int(g.receivers) {
			receiver = 0
		}
	}
	return end
}

func (g *group) check(result *outcome) {
	result.check("the sum received", g.reports.sum.Load(), sumBelow(g.total))
	result.check("messages received in the wrong order", g.misplaced.Load(), 0)
}
