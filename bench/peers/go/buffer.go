package main

// toManager is an item of a producer, a producer's end, or a consumer that is ready for another item.
type toManager struct {
	kind     managerKind
	item     uint64
	producer chan<- struct{}
	consumer chan<- uint64
}

type managerKind uint8

const (
	newItem managerKind = iota
	noMoreItems
	ready
)

type consumed struct {
	items, sum, state uint64
}

type bufferReport struct {
	items, sum, most uint64
}

// buffer: a manager takes items from producers and gives them to consumers; it holds few at a time.
func buffer(given settings, result *outcome) error {
	keys, err := given.numbers("producers", "consumers", "capacity", "work")
	if err != nil {
		return err
	}
	producers, capacity := keys[0], keys[2]
	report := measure(result, func() bufferReport {
		return manage(given.count, producers, keys[1], capacity, keys[3])
	})
	result.check("items consumed", report.items, given.count*producers)
	due, bound := uint64(0), producers+1
	for index := uint64(0); index < producers; index++ {
		for draw, left := randomOf(index), given.count; left > 0; left-- {
			due += draw.advance(keys[3])
		}
	}
	result.check("their sum", report.sum, due)
	if bound < capacity {
		bound = capacity
	}
	result.check("items beyond the capacity", report.most-least(report.most, bound), 0)
	return nil
}

// manage is the manager. A producer whose item fills the buffer waits until one is taken.
func manage(count, producers, consumers, capacity, work uint64) (report bufferReport) {
	// A producer and a consumer have one message under way.
	inbox := make(chan toManager, producers+consumers)
	ends := make(chan consumed, consumers)
	var all, idle []chan<- uint64
	for index := uint64(0); index < consumers; index++ {
		items := make(chan uint64, 1)
		go consume(index, work, items, inbox, ends)
		all, idle = append(all, items), append(idle, items)
	}
	for index := uint64(0); index < producers; index++ {
		asked := make(chan struct{}, 1)
		go produce(index, count, work, asked, inbox)
		asked <- struct{}{}
	}
	// Each producer may have an item under way, for which there has to be room.
	full := int(capacity) - int(producers)
	if full < 1 {
		full = 1
	}
	var items []uint64
	var waiting []chan<- struct{}
	for producers > 0 || len(idle) < len(all) {
		message := <-inbox
		switch message.kind {
		case newItem:
			if len(idle) > 0 {
				idle[0] <- message.item
				idle = idle[1:]
			} else {
				items = append(items, message.item)
				if most := uint64(len(items)); most > report.most {
					report.most = most
				}
			}
			if len(items) >= full {
				waiting = append(waiting, message.producer)
			} else {
				message.producer <- struct{}{}
			}
		case noMoreItems:
			producers--
		case ready:
			if len(items) > 0 {
				message.consumer <- items[0]
				items = items[1:]
				if len(waiting) > 0 {
					waiting[0] <- struct{}{}
					waiting = waiting[1:]
				}
			} else {
				idle = append(idle, message.consumer)
			}
		}
	}
	for _, consumer := range all {
		close(consumer)
	}
	for range all {
		end := <-ends
		report.items += end.items
		report.sum += end.sum
	}
	return report
}

func produce(index, count, work uint64, asked chan struct{}, manager chan<- toManager) {
	draw := randomOf(index)
	for range asked {
		if count == 0 {
			manager <- toManager{kind: noMoreItems}
			return
		}
		count--
		manager <- toManager{kind: newItem, item: draw.advance(work), producer: asked}
	}
}

func consume(index, work uint64, items chan uint64, manager chan<- toManager, ends chan<- consumed) {
	draw, end := randomOf(index), consumed{}
	for item := range items {
		end.items++
		end.sum += item
		draw += random(item)
		end.state = draw.advance(work)
		manager <- toManager{kind: ready, consumer: items}
	}
	ends <- end
}
