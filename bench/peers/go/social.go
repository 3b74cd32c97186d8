package main

import (
	"errors"
	"math"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// sampledRequests of a client to each that is timed separately, which is the first of them.
const sampledRequests = 8

// social: shards of users are goroutines that push each post to the shards of the followers, and clients are
// goroutines that make requests. A timeline is a slice that is only appended to while a reader may have it, so a reader
// gets the slice itself.
func social(given settings, result *outcome) error {
	keys, err := given.numbers("follows", "posts", "requests", "clients", "users_per_process", "read", "rounds", "dropped")
	if err != nil {
		return err
	}
	follows, posts, requests, rounds, dropped := keys[0], keys[1], keys[2], keys[6], keys[7]
	if dropped >= rounds {
		return errors.New("dropped must be less than rounds")
	}
	plan := newSocialPlan(given.count, follows, posts, rounds, requests, given.keys["graph"], given.keys["part"])
	blog := &microblog{
		plan: plan, directory: newMailbox[directoryRequest](), users: make([]account, given.count),
		clients: int(keys[3]), posts: posts, read: int(keys[5]),
	}
	go direct(blog.directory, int(keys[4]))

	registered := make(chan account, 1)
	clock := time.Now()
	for user := range blog.users {
		blog.directory.send(directoryRequest{name: userName(user), registered: registered})
		blog.users[user] = <-registered
	}
	result.metric("register_ns", each(time.Since(clock), given.count))
	clock = time.Now()
	blog.onClients(func(client int, own *visitor) {
		for user := client; user < len(blog.users); user += blog.clients {
			for _, target := range plan.followees[user] {
				blog.users[target].ask(shardRequest{kind: follow, from: blog.users[user], reply: own.answers})
				<-own.answers
			}
		}
	})
	if count := plan.follows(); count > 0 {
		result.metric("follow_ns", each(time.Since(clock), count))
	}
	blog.onClients(func(client int, own *visitor) {
		for at := client; at < len(plan.before); at += blog.clients {
			blog.post(plan.before[at], own)
		}
	})

	wrong := uint64(0)
	kept, times := new(visitor), []int64{}
	for round, all := range plan.rounds {
		clock := time.Now()
		own := blog.onClients(func(client int, own *visitor) { blog.serve(all, client, own) })
		elapsed := time.Since(clock).Nanoseconds()
		wrong += own.wrong
		if uint64(round) >= dropped {
			times = append(times, elapsed)
			kept.add(own)
		}
	}
	blog.report(result, plan.rounds[dropped:], kept, times)
	result.check("wrong answers", wrong, 0)
	blog.settle(result)
	return nil
}

func (plan *socialPlan) follows() (count uint64) {
	for _, followees := range plan.followees {
		count += uint64(len(followees))
	}
	return count
}

func (blog *microblog) report(result *outcome, rounds [][]socialRequest, kept *visitor, times []int64) {
	followers := make([]uint64, len(blog.users))
	for _, followees := range blog.plan.followees {
		for _, target := range followees {
			followers[target]++
		}
	}
	due, counts := uint64(0), [4]uint64{}
	for _, requests := range rounds {
		for _, request := range requests {
			counts[request.kind]++
			if request.kind == sendPost {
				due += followers[request.user]
			}
		}
	}
	elapsed := float64(0)
	for _, time := range times {
		elapsed += float64(time)
	}
	mean, squares := elapsed/float64(len(times)), float64(0)
	for _, time := range times {
		squares += (float64(time) - mean) * (float64(time) - mean)
	}
	rate := func(name string, count uint64) {
		if count > 0 {
			result.metric(name, float64(count)*1e9/elapsed)
		}
	}
	rate("deliveries_per_s", kept.deliveries)
	rate("posts_per_s", counts[sendPost])
	rate("timelines_per_s", counts[readTimeline])
	rate("profiles_per_s", counts[readProfile])
	rate("redirects_per_s", counts[readRedirected])
	result.metric("round_mean_ns", mean)
	if len(times) > 1 {
		result.metric("round_deviation_ns", math.Sqrt(squares/float64(len(times)-1)))
	}
	percentiles(kept.latencies, result)
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	result.distribution("round", func(probability float64) float64 {
		return float64(times[rank(probability, len(times))])
	})
	result.check("deliveries", kept.deliveries, due)
}

// settle reads all timelines and profiles, and checks their sums and texts.
func (blog *microblog) settle(result *outcome) {
	timelines, profiles, wrong := uint64(0), uint64(0), uint64(0)
	answers := make(chan answer, 1)
	sum := func(user account, kind shardRequestKind) uint64 {
		user.ask(shardRequest{kind: kind, reply: answers})
		found := (<-answers).posts
		times := make([]uint64, len(found))
		for i, post := range found {
			times[i] = post.time
			if post.text != postText(post.time) {
				wrong++
			}
		}
		return sumOfTimes(times)
	}
	for _, user := range blog.users {
		timelines += sum(user, getTimeline)
		profiles += sum(user, getProfile)
	}
	dueTimelines, dueProfiles := blog.plan.sums()
	result.check("the sum of the timelines", timelines, dueTimelines)
	result.check("the sum of the profiles", profiles, dueProfiles)
	result.check("posts with a wrong text", wrong, 0)
}

func userName(user int) string { return "user_" + strconv.Itoa(user) }

func postText(time uint64) string { return "post " + strconv.FormatUint(time, 10) }

// microblog is what all clients share.
type microblog struct {
	plan          *socialPlan
	directory     *mailbox[directoryRequest]
	users         []account
	clients, read int
	posts         uint64
}

// visitor is a client's own: what it counts, and the channel of its answers.
type visitor struct {
	deliveries, wrong uint64
	latencies         []int64
	answers           chan answer
}

func (own *visitor) add(other *visitor) {
	own.deliveries += other.deliveries
	own.wrong += other.wrong
	own.latencies = append(own.latencies, other.latencies...)
}

// onClients runs a function in each client, a goroutine, and returns what they have counted.
func (blog *microblog) onClients(work func(client int, own *visitor)) *visitor {
	var done sync.WaitGroup
	all := make([]*visitor, blog.clients)
	for client := range all {
		all[client] = &visitor{answers: make(chan answer, 1)}
		done.Add(1)
		go func(client int) {
			work(client, all[client])
			done.Done()
		}(client)
	}
	done.Wait()
	sum := new(visitor)
	for _, own := range all {
		sum.add(own)
	}
	return sum
}

// serve makes the requests of a client, one after the other.
func (blog *microblog) serve(requests []socialRequest, client int, own *visitor) {
	for index, at := 0, client; at < len(requests); index, at = index+1, at+blog.clients {
		if index%sampledRequests != 0 {
			blog.request(requests[at], own)
			continue
		}
		clock := time.Now()
		blog.request(requests[at], own)
		own.latencies = append(own.latencies, time.Since(clock).Nanoseconds())
	}
}

func (blog *microblog) request(request socialRequest, own *visitor) {
	due := blog.posts
	switch request.kind {
	case sendPost:
		own.deliveries += blog.post(request, own)
		return
	case readTimeline:
		due *= uint64(len(blog.plan.followees[request.user]))
		blog.users[request.user].ask(shardRequest{kind: getTimeline, reply: own.answers})
	case readProfile:
		blog.users[request.user].ask(shardRequest{kind: getProfile, reply: own.answers})
	case readRedirected:
		blog.directory.send(directoryRequest{name: userName(request.user), profile: own.answers})
	}
	if !blog.isRight((<-own.answers).posts, due) {
		own.wrong++
	}
}

// post sends a message; it returns the number of followers that have received it when the last has.
func (blog *microblog) post(request socialRequest, own *visitor) uint64 {
	post := socialPost{request.time, postText(request.time), request.user}
	blog.users[request.user].ask(shardRequest{kind: sendMessage, post: &post, reply: own.answers})
	return (<-own.answers).received
}

// isRight reads the newest posts, which must be newest first, have texts, and be as many as are due.
func (blog *microblog) isRight(posts []*socialPost, due uint64) bool {
	newer, count := uint64(math.MaxUint64), 0
	for i := len(posts) - 1; i >= 0 && count < blog.read; i-- {
		if posts[i].time >= newer || len(posts[i].text) <= 5 {
			return false
		}
		newer = posts[i].time
		count++
	}
	return uint64(count) >= least(due, uint64(blog.read))
}

// directoryRequest registers a user, or asks for the profile of one whose shard the client does not know.
type directoryRequest struct {
	name       string
	registered chan account
	profile    chan answer
}

// direct knows all users and starts their shards.
func direct(requests *mailbox[directoryRequest], each int) {
	users := map[string]account{}
	var newest *userShard
	for {
		for _, request := range requests.receiveAll() {
			if request.registered == nil {
				users[request.name].ask(shardRequest{kind: getProfile, reply: request.profile})
				continue
			}
			slot := len(users) % each
			if slot == 0 {
				newest = &userShard{requests: newMailbox[shardRequest](), own: make([]holdings, each)}
				go newest.run()
			}
			users[request.name] = account{newest, slot}
			request.registered <- users[request.name]
		}
	}
}

// account is the place of a user.
type account struct {
	shard *userShard
	slot  int
}

func (user account) ask(request shardRequest) {
	request.slot = user.slot
	user.shard.requests.send(request)
}

type socialPost struct {
	time   uint64
	text   string
	author int
}

// answer has posts, oldest first, or the number of timelines that have received a post.
type answer struct {
	posts    []*socialPost
	received uint64
}

type shardRequestKind int

const (
	follow shardRequestKind = iota
	backFill
	sendMessage
	receive
	getTimeline
	getProfile
)

type shardRequest struct {
	kind     shardRequestKind
	slot     int
	slots    []int
	from     account
	post     *socialPost
	posts    []*socialPost
	delivery *delivery
	reply    chan answer
}

// delivery is a post on its way: the last of the shards that receive it answers the author's client.
type delivery struct {
	post              *socialPost
	waiting, received atomic.Int64
	reply             chan answer
}

// userShard holds some users.
type userShard struct {
	requests *mailbox[shardRequest]
	own      []holdings
}

type holdings struct {
	timeline, profile socialPosts
	followers         map[*userShard][]int
}

// socialPosts are oldest first.
type socialPosts struct {
	posts  []*socialPost
	isRead bool
}

func (all *socialPosts) read() []*socialPost {
	all.isRead = true
	return all.posts
}

// insert adds a post at its place. A reader sees no post behind those that it got, and none of these moves.
func (all *socialPosts) insert(post *socialPost) {
	at := len(all.posts)
	for at > 0 && all.posts[at-1].time > post.time {
		at--
	}
	if at < len(all.posts) && all.isRead {
		all.posts, all.isRead = append([]*socialPost(nil), all.posts...), false
	}
	all.posts = append(all.posts, post)
	if at+1 < len(all.posts) {
		copy(all.posts[at+1:], all.posts[at:])
		all.posts[at] = post
	}
}

func (s *userShard) run() {
	for {
		for _, request := range s.requests.receiveAll() {
			s.handle(request)
		}
	}
}

func (s *userShard) handle(request shardRequest) {
	user := &s.own[request.slot]
	switch request.kind {
	case follow:
		if user.followers == nil {
			user.followers = map[*userShard][]int{}
		}
		// A post on its way has the slice as it was. A user that follows twice would get a second copy; the plan has
		// no such follow.
		from := request.from
		user.followers[from.shard] = append(user.followers[from.shard], from.slot)
		from.ask(shardRequest{kind: backFill, posts: user.profile.read(), reply: request.reply})
	case backFill:
		if len(request.posts) > 0 {
			merged := append(append([]*socialPost(nil), user.timeline.posts...), request.posts...)
			sort.SliceStable(merged, func(i, j int) bool { return merged[i].time < merged[j].time })
			user.timeline = socialPosts{posts: merged}
		}
		request.reply <- answer{}
	case sendMessage:
		user.profile.insert(request.post)
		if len(user.followers) == 0 {
			request.reply <- answer{}
			return
		}
		delivery := &delivery{post: request.post, reply: request.reply}
		delivery.waiting.Store(int64(len(user.followers)))
		for there, slots := range user.followers {
			there.requests.send(shardRequest{kind: receive, slots: slots, delivery: delivery})
		}
	case receive:
		for _, slot := range request.slots {
			s.own[slot].timeline.insert(request.delivery.post)
		}
		request.delivery.received.Add(int64(len(request.slots)))
		if request.delivery.waiting.Add(-1) == 0 {
			// Read when all have added theirs.
			request.delivery.reply <- answer{received: uint64(request.delivery.received.Load())}
		}
	case getTimeline:
		request.reply <- answer{posts: user.timeline.read()}
	case getProfile:
		request.reply <- answer{posts: user.profile.read()}
	}
}
