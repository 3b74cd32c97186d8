package main

// plea is a message of a philosopher: hungry, done with a meal, or done with all.
type plea struct {
	kind   pleaKind
	index  uint64
	answer chan<- bool
}

type pleaKind uint8

const (
	hungry pleaKind = iota
	eaten
	leaving
)

type tableReport struct {
	meals, stolen, held uint64
}

// philosophers: an arbiter owns the forks; a philosopher asks for two until it gets them, eats, and asks again.
func philosophers(given settings, result *outcome) error {
	keys, err := given.numbers("philosophers")
	if err != nil {
		return err
	}
	report := measure(result, func() tableReport { return arbitrate(given.count, keys[0]) })
	result.check("meals eaten", report.meals, given.count*keys[0])
	result.check("forks that were granted while another had them", report.stolen, 0)
	result.check("forks held at the end", report.held, 0)
	return nil
}

// arbitrate is the arbiter. A fork is free (0) or has its holder's index plus one. A fork that was granted to a
// second philosopher no longer has the first when this one puts it down.
func arbitrate(meals, count uint64) (report tableReport) {
	forks := make([]uint64, count)
	inbox := make(chan plea, 2*count)
	for index := uint64(0); index < count; index++ {
		go philosopher(index, meals, inbox)
	}
	for left := count; left > 0; {
		plea := <-inbox
		one, other := &forks[plea.index], &forks[(plea.index+1)%count]
		holder := plea.index + 1
		switch plea.kind {
		case hungry:
			isFree := *one == 0 && *other == 0
			if isFree {
				*one, *other = holder, holder
			}
			plea.answer <- isFree
		case eaten:
			report.meals++
			report.stolen += wrong(*one, holder) + wrong(*other, holder)
			*one, *other = 0, 0
		case leaving:
			left--
		}
	}
	for _, fork := range forks {
		report.held += wrong(fork, 0)
	}
	return report
}

func philosopher(index, meals uint64, arbiter chan<- plea) {
	answer := make(chan bool, 1)
	for meals > 0 {
		arbiter <- plea{hungry, index, answer}
		if mayEat := <-answer; mayEat {
			arbiter <- plea{kind: eaten, index: index}
			meals--
		}
	}
	arbiter <- plea{kind: leaving, index: index}
}
