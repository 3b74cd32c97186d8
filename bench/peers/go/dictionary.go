package main

// query reads the value of a key, or writes it, and has the channel for the answer, which is zero if no client has
// written the key.
type query struct {
	key, value uint64
	isWrite    bool
	answer     chan<- uint64
}

type dictionaryReport struct {
	handled, writes, size uint64
}

type clientReport struct {
	wrong, written, keys uint64
}

type dictionaryReports struct {
	dictionary dictionaryReport
	clients    clientReport
}

// dictionary: clients read and write a map that one goroutine holds.
func dictionary(given settings, result *outcome) error {
	keys, err := given.numbers("clients", "writes")
	if err != nil {
		return err
	}
	report := measure(result, func() dictionaryReports { return askAll(given.count, keys[0], keys[1]) })
	result.check("requests handled", report.dictionary.handled, given.count*keys[0])
	result.check("wrong answers", report.clients.wrong, 0)
	result.check("writes handled", report.dictionary.writes, report.clients.written)
	result.check("entries of the dictionary", report.dictionary.size, report.clients.keys)
	return nil
}

func askAll(count, clients, writes uint64) (report dictionaryReports) {
	queries := make(chan query, clients)
	ended := make(chan dictionaryReport)
	go func() { ended <- answerAll(queries) }()
	done := make(chan clientReport, clients)
	for index := uint64(0); index < clients; index++ {
		go func(index uint64) { done <- client(index, count, writes, queries) }(index)
	}
	for ; clients > 0; clients-- {
		client := <-done
		report.clients.wrong += client.wrong
		report.clients.written += client.written
		report.clients.keys += client.keys
	}
	close(queries)
	report.dictionary = <-ended
	return report
}

func answerAll(queries <-chan query) (report dictionaryReport) {
	values := map[uint64]uint64{}
	for query := range queries {
		report.handled++
		if query.isWrite {
			report.writes++
			values[query.key] = query.value
		} else {
			query.value = values[query.key]
		}
		query.answer <- query.value
	}
	report.size = uint64(len(values))
	return report
}

// client has at most 512 keys of its own, and keeps what it wrote last to each: the number of requests left.
func client(index, count, writes uint64, queries chan<- query) (report clientReport) {
	own := map[uint64]uint64{}
	answer := make(chan uint64, 1)
	draw := randomOf(index)
	for ; count > 0; count-- {
		isWrite := draw.below(100) < writes
		key := index<<16 + draw.next()>>7
		due := own[key]
		if isWrite {
			due = count
			own[key] = due
			report.written++
		}
		queries <- query{key, due, isWrite, answer}
		report.wrong += wrong(<-answer, due)
	}
	report.keys = uint64(len(own))
	return report
}
