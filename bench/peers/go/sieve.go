package main

type primes struct {
	count, sum uint64
}

// sieve: a producer sends odd numbers to a chain of filters, each of which has a block of primes.
func sieve(given settings, result *outcome) error {
	keys, err := given.numbers("block")
	if err != nil {
		return err
	}
	found := measure(result, func() primes { return sendOdd(given.count, keys[0]) })
	limit := given.count
	if limit < 3 {
		limit = 3 // The first filter has the prime 2.
	}
	due := primesBelow(limit)
	result.check("primes", found.count, due.count)
	result.check("their sum", found.sum, due.sum)
	return nil
}

func sendOdd(limit, block uint64) primes {
	first, found := make(chan uint64, backlog), make(chan primes, 1)
	go filter(2, block, first, found)
	for number := uint64(3); number < limit; number += 2 {
		first <- number
	}
	close(first)
	return <-found
}

// filter adds primes to its block until it is full, and starts a filter for the next prime. It reports its
// primes, and those of the filters behind it.
func filter(initial, block uint64, numbers <-chan uint64, found chan<- primes) {
	own := make([]uint64, 1, block)
	own[0] = initial
	var next chan uint64
	behind := make(chan primes, 1)
	for number := range numbers {
		switch {
		case hasDivisor(number, own):
		case next != nil:
			next <- number
		case uint64(len(own)) < block:
			own = append(own, number)
		default:
			next = make(chan uint64, backlog)
			go filter(number, block, next, behind)
		}
	}
	var sum primes
	if next != nil {
		close(next)
		sum = <-behind
	}
	for _, prime := range own {
		sum.count++
		sum.sum += prime
	}
	found <- sum
}

func hasDivisor(number uint64, primes []uint64) bool {
	for _, prime := range primes {
		if number%prime == 0 {
			return true
		}
	}
	return false
}

// primesBelow counts and adds up the primes below a limit.
func primesBelow(limit uint64) (sum primes) {
	composite := make([]bool, limit)
	for number := uint64(2); number < limit; number++ {
		if composite[number] {
			continue
		}
		sum.count++
		sum.sum += number
		for multiple := number * number; multiple < limit; multiple += number {
			composite[multiple] = true
		}
	}
	return sum
}
