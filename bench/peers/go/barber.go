package main

// customer is the mailbox of a customer.
type customer chan customerMessage

type customerMessage uint8

const (
	full customerMessage = iota
	wait
	start
	finish
)

// served is a customer that the room has turned away, or one that has left with a number of haircuts.
type served struct {
	returned        customer
	index, haircuts uint64
}

type barberReport struct {
	haircuts, others uint64
}

// barber: customers wait in a room with few places until the barber has time for them; customers who find the
// room full come again.
func barber(given settings, result *outcome) error {
	keys, err := given.numbers("room", "arrival", "work")
	if err != nil {
		return err
	}
	report := measure(result, func() barberReport { return factory(given.count, keys[0], keys[1], keys[2]) })
	result.check("haircuts", report.haircuts, given.count)
	result.check("customers with other than one haircut", report.others, 0)
	return nil
}

func factory(count, places, arrival, work uint64) (report barberReport) {
	enter, next := make(chan customer, queue), make(chan struct{}, 1)
	chair, haircuts := make(chan customer, 1), make(chan uint64)
	go waitingRoom(places, enter, next, chair)
	go func() { haircuts <- cutAll(work, chair, next) }()

	inbox := make(chan served, queue)
	draw := randomOf(0)
	for index := uint64(0); index < count; index++ {
		// The room's messages until the customer sends one itself.
		mailbox := make(customer, 3)
		go attend(index, mailbox, inbox)
		enter <- mailbox
		busy(draw.below(arrival) + 10)
	}
	for left := count; left > 0; {
		message := <-inbox
		if message.returned != nil {
			enter <- message.returned
			continue
		}
		left--
		report.others += wrong(message.haircuts, 1)
	}
	close(enter)
	report.haircuts = <-haircuts
	return report
}

// waitingRoom sends a customer to the barber's chair when the barber has finished with another, or is asleep.
func waitingRoom(places uint64, enter <-chan customer, next <-chan struct{}, chair chan<- customer) {
	defer close(chair)
	var waiting []customer
	asleep := true
	for {
		select {
		case entering, isOpen := <-enter:
			switch {
			case !isOpen:
				return
			case uint64(len(waiting)) == places:
				entering <- full
			case asleep:
				asleep = false
				chair <- entering
			default:
				waiting = append(waiting, entering)
				entering <- wait
			}
		case <-next:
			if asleep = len(waiting) == 0; !asleep {
				chair <- waiting[0]
				waiting = waiting[1:]
			}
		}
	}
}

func cutAll(work uint64, chair <-chan customer, next chan<- struct{}) (haircuts uint64) {
	draw := randomOf(0)
	for customer := range chair {
		customer <- start
		busy(draw.below(work) + 10)
		haircuts++
		customer <- finish
		next <- struct{}{}
	}
	return haircuts
}

func attend(index uint64, mailbox customer, factory chan<- served) {
	haircuts := uint64(0)
	for message := range mailbox {
		switch message {
		case full:
			factory <- served{returned: mailbox}
		case start:
			haircuts++
		case finish:
			factory <- served{index: index, haircuts: haircuts}
			return
		}
	}
}
