package main

type smoked struct {
	index, times uint64
}

type smokersReport struct {
	rounds, smoked, others uint64
}

// smokers: an arbiter chooses a smoker at random, and the next one when this one has started to smoke.
func smokers(given settings, result *outcome) error {
	keys, err := given.numbers("smokers")
	if err != nil {
		return err
	}
	report := measure(result, func() smokersReport { return chooseAll(given.count, keys[0]) })
	result.check("rounds", report.rounds, given.count)
	result.check("cigarettes smoked", report.smoked, given.count)
	result.check("smokers that smoked more or less often than chosen", report.others, 0)
	return nil
}

func chooseAll(rounds, count uint64) (report smokersReport) {
	started, ends := make(chan struct{}, 1), make(chan smoked, count)
	all, chosen := make([]chan uint64, count), make([]uint64, count)
	for index := range all {
		// The arbiter may choose a smoker again while it smokes.
		all[index] = make(chan uint64, queue)
		go smoke(uint64(index), all[index], started, ends)
	}
	draw := randomOf(0)
	for ; rounds > 0; rounds-- {
		index := draw.below(count)
		chosen[index]++
		all[index] <- draw.below(1000) + 10
		<-started
		report.rounds++
	}
	for _, smoker := range all {
		close(smoker)
	}
	for range all {
		end := <-ends
		report.smoked += end.times
		report.others += wrong(end.times, chosen[end.index])
	}
	return report
}

func smoke(index uint64, chosen <-chan uint64, started chan<- struct{}, ends chan<- smoked) {
	end := smoked{index: index}
	for steps := range chosen {
		started <- struct{}{}
		busy(steps)
		end.times++
	}
	ends <- end
}
