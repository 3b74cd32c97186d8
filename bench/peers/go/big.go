package main

// bigMessage is a ping, with the channel for its pong, or a pong with the ping's number, or the end.
type bigMessage struct {
	kind   bigKind
	number uint64
	from   chan<- bigMessage
}

type bigKind uint8

const (
	ping bigKind = iota
	pong
	end
)

type bigReport struct {
	pings, pongs, wrong uint64
}

// big: each actor sends pings to random others, one at a time, and answers the pings of others.
func big(given settings, result *outcome) error {
	keys, err := given.numbers("actors")
	if err != nil {
		return err
	}
	report := measure(result, func() bigReport { return sink(given.count, keys[0]) })
	result.check("pings received", report.pings, given.count*keys[0])
	result.check("pongs received", report.pongs, given.count*keys[0])
	result.check("pongs without their ping", report.wrong, 0)
	return nil
}

func sink(count, actors uint64) (sum bigReport) {
	neighbours := make([]chan bigMessage, actors)
	for index := range neighbours {
		// A ping of each actor, a pong, and the end.
		neighbours[index] = make(chan bigMessage, actors+2)
	}
	done, reports := make(chan struct{}, actors), make(chan bigReport, actors)
	for index := range neighbours {
		go pinger(uint64(index), count, neighbours, done, reports)
	}
	for range neighbours {
		<-done
	}
	for _, actor := range neighbours {
		actor <- bigMessage{kind: end}
	}
	for range neighbours {
		report := <-reports
		sum.pings += report.pings
		sum.pongs += report.pongs
		sum.wrong += report.wrong
	}
	return sum
}

func pinger(index, left uint64, all []chan bigMessage, done chan<- struct{}, reports chan<- bigReport) {
	var report bigReport
	inbox, size := all[index], uint64(len(all))
	draw := randomOf(index)
	send := func() {
		if left == 0 {
			done <- struct{}{}
			return
		}
		// A random other actor; if there is no other, this one.
		step := uint64(1)
		if size > 1 {
			step += draw.below(size - 1)
		}
		all[(index+step)%size] <- bigMessage{ping, left, inbox}
	}
	send()
	for message := range inbox {
		switch message.kind {
		case ping:
			report.pings++
			message.from <- bigMessage{kind: pong, number: message.number}
		case pong:
			report.pongs++
			report.wrong += wrong(message.number, left)
			left--
			send()
		case end:
			reports <- report
			return
		}
	}
}
