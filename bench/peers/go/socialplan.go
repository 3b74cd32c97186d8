package main

import "sort"

// The seeds of the draws of the plan, which is that of src/workloads/social/plan.rs, number by number.
const (
	followSeed  = 1
	requestSeed = 2
)

// draw returns the output of splitmix64 with a seed that follows index others.
func draw(seed, index uint64) uint64 {
	state := seed + (index+1)*0x9E37_79B9_7F4A_7C15
	state = (state ^ state>>30) * 0xBF58_476D_1CE4_E5B9
	state = (state ^ state>>27) * 0x94D0_49BB_1331_11EB
	return state ^ state>>31
}

type requestKind int

const (
	readTimeline requestKind = iota
	readProfile
	readRedirected
	sendPost
)

// kindOf returns the kind of a request in a part of the workload, by a number below 100.
func kindOf(part string, percent uint64) requestKind {
	switch {
	case part == "timelines" || part == "mix" && percent < 80:
		return readTimeline
	case part == "profiles" || part == "mix" && percent < 95:
		return readProfile
	case part == "redirects":
		return readRedirected
	}
	return sendPost
}

// socialRequest is a request of a client; a post has a time of its own.
type socialRequest struct {
	kind requestKind
	user int
	time uint64
}

// socialPlan has the follows, the posts before the clock, and the requests of each round.
type socialPlan struct {
	followees [][]int
	before    []socialRequest
	rounds    [][]socialRequest
}

func newSocialPlan(users, follows, posts, rounds, requests uint64, graph, part string) *socialPlan {
	plan := &socialPlan{followees: make([][]int, users)}
	sums := make([]uint64, users)
	total := uint64(0)
	for user := range sums {
		total += (1 << 40) / uint64(user+1)
		sums[user] = total
	}
	for user := range plan.followees {
		drawn := map[int]bool{user: true}
		for at := uint64(0); at < follows; at++ {
			number := draw(followSeed, uint64(user)*follows+at)
			target := int(number % users)
			switch graph {
			case "zipf":
				target = sort.Search(len(sums), func(i int) bool { return sums[i] > number%total })
			case "ring":
				target = int((uint64(user) + 1 + at) % users)
			}
			if !drawn[target] {
				drawn[target] = true
				plan.followees[user] = append(plan.followees[user], target)
			}
		}
	}
	for index := uint64(0); index < users*posts; index++ {
		plan.before = append(plan.before, socialRequest{sendPost, int(index % users), index + 1})
	}
	for round := uint64(0); round < rounds; round++ {
		all := make([]socialRequest, requests)
		for i := range all {
			index := round*requests + uint64(i)
			number := draw(requestSeed, index)
			all[i] = socialRequest{kindOf(part, number%100), int(number / 100 % users), users*posts + 1 + index}
		}
		plan.rounds = append(plan.rounds, all)
	}
	return plan
}

// sums returns the sums over all timelines and all profiles when all requests are done.
func (plan *socialPlan) sums() (timelines, profiles uint64) {
	own := make([][]uint64, len(plan.followees))
	for _, requests := range append([][]socialRequest{plan.before}, plan.rounds...) {
		for _, request := range requests {
			if request.kind == sendPost {
				own[request.user] = append(own[request.user], request.time)
			}
		}
	}
	for user, followees := range plan.followees {
		var timeline []uint64
		for _, target := range followees {
			timeline = append(timeline, own[target]...)
		}
		sort.Slice(timeline, func(i, j int) bool { return timeline[i] < timeline[j] })
		timelines += sumOfTimes(timeline)
		profiles += sumOfTimes(own[user])
	}
	return timelines, profiles
}

// sumOfTimes returns a number that depends on times and on their order; the list has the oldest first.
func sumOfTimes(times []uint64) (sum uint64) {
	for i := len(times) - 1; i >= 0; i-- {
		sum = (sum*31 + times[i]) & (1<<30 - 1)
	}
	return sum
}
