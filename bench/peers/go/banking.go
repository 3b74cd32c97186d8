package main

// initialBalance of an account.
const initialBalance = 1_000_000

// transfer asks an account to credit a destination, or, with an acknowledgement, to take the amount.
type transfer struct {
	transaction
	amount       uint64
	destination  chan<- transfer
	acknowledged chan<- struct{}
}

type transaction struct {
	number, source uint64
}

type tellerReport struct {
	completed, balances, misplaced uint64
}

// banking: a teller sends transfers to accounts, each of which has another account credited and waits for its
// acknowledgement.
func banking(given settings, result *outcome) error {
	keys, err := given.numbers("accounts")
	if err != nil {
		return err
	}
	accounts := keys[0]
	if accounts < 2 {
		accounts = 2
	}
	report := measure(result, func() tellerReport { return teller(given.count, accounts) })
	result.check("transactions completed", report.completed, given.count)
	result.check("the sum of the balances", report.balances, accounts*initialBalance)
	result.check("transactions completed before an earlier one of their account", report.misplaced, 0)
	return nil
}

func teller(count, accounts uint64) (report tellerReport) {
	completed, balances := make(chan transaction, count), make(chan uint64, accounts)
	all := make([]chan transfer, accounts)
	for index := range all {
		all[index] = make(chan transfer, queue)
		go keep(all[index], completed, balances)
	}
	sources := accounts / 10 * 8
	if sources == 0 {
		sources = 1
	}
	draw := randomOf(0)
	for number := uint64(1); number <= count; number++ {
		// The destination is greater than the source, so that no accounts wait for each other in a circle.
		source := draw.below(sources)
		distance := draw.below(accounts - source)
		if distance == 0 {
			distance = 1
		}
		all[source] <- transfer{transaction{number, source}, 1 + draw.below(1000), all[source+distance], nil}
	}
	last := make([]uint64, accounts)
	for ; report.completed < count; report.completed++ {
		// An account with two transactions open at once could complete the later first.
		transaction := <-completed
		if transaction.number < last[transaction.source] {
			report.misplaced++
		}
		last[transaction.source] = transaction.number
	}
	for _, account := range all {
		close(account)
	}
	for range all {
		report.balances += <-balances
	}
	return report
}

// keep is an account. While it waits for an acknowledgement, other messages stay in its mailbox.
func keep(mailbox <-chan transfer, completed chan<- transaction, balances chan<- uint64) {
	balance := uint64(initialBalance)
	acknowledged := make(chan struct{}, 1)
	for message := range mailbox {
		if message.acknowledged != nil {
			balance += message.amount
			message.acknowledged <- struct{}{}
			continue
		}
		balance -= message.amount
		message.destination <- transfer{amount: message.amount, acknowledged: acknowledged}
		<-acknowledged
		completed <- message.transaction
	}
	balances <- balance
}
