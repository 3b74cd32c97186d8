//! The plan of `social`: a graph of follows, requests, and the sums that all timelines and profiles must have at the
//! end. `bench/peers/erlang/bench_social_plan.erl` draws the same, number by number.
//!
//! Every post has a time of its own: the posts before the clock have the times from 1, the user `i` modulo the number
//! of users being the author of post `i`; the requests that post follow, each with the time of its index.

use crate::settings::Settings;
use crate::workloads::records::scattered;

/// Seeds of the draws.
const FOLLOWS: u64 = 1;
const REQUESTS: u64 = 2;

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Bits of the sum of a timeline.
const SUM_BITS: u64 = (1 << 30) - 1;

/// Returns the output of splitmix64 with a seed that follows `index` others.
fn draw(seed: u64, index: u64) -> u64 {
    scattered(seed.wrapping_add(index.wrapping_mul(GAMMA)))
}

enum Graph {
    Uniform,
    /// User `i` with a probability proportional to 1/(i + 1), by the sums of the weights.
    Zipf(Vec<u64>),
    /// The users after the user, so that all have the same number of followers.
    Ring,
}

impl Graph {
    fn new(word: &str, users: u64) -> Graph {
        let weight = |sum: &mut u64, rank: u64| {
            *sum += (1 << 40) / rank;
            Some(*sum)
        };
        match word {
            "uniform" => Graph::Uniform,
            "zipf" => Graph::Zipf((1..=users).scan(0, weight).collect()),
            _ => Graph::Ring,
        }
    }

    /// Returns a user that is followed, which may be the user itself.
    fn target(&self, user: u64, at: u64, follows: u64, users: u64) -> u64 {
        let draw = || draw(FOLLOWS, user * follows + at);
        match self {
            Graph::Uniform => draw() % users,
            Graph::Zipf(sums) => {
                let number = draw() % sums.last().copied().unwrap_or(1);
                sums.partition_point(|sum| *sum <= number) as u64
            }
            Graph::Ring => (user + 1 + at) % users,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Timeline,
    Profile,
    /// A profile of a user whose process the client does not know.
    Redirect,
    Post,
}

impl Kind {
    /// Returns the kind of a request in a part of the workload, by a number below 100.
    fn of(part: &str, percent: u64) -> Kind {
        match (part, percent) {
            ("timelines", _) | ("mix", 0..80) => Kind::Timeline,
            ("profiles", _) | ("mix", 80..95) => Kind::Profile,
            ("redirects", _) => Kind::Redirect,
            _ => Kind::Post,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) user: u32,
    /// Time of the post, if it is one.
    pub(super) time: u64,
}

/// The follows, the posts before the clock, and the requests of each round.
pub(super) struct Plan {
    /// The users that each user follows, in ascending order.
    pub(super) followees: Vec<Vec<u32>>,
    /// Number of posts of each user before the clock.
    pub(super) posts: u64,
    pub(super) rounds: Vec<Vec<Request>>,
}

/// The sums over all timelines, and over all profiles, at the end.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Sums {
    pub(super) timelines: u64,
    pub(super) profiles: u64,
}

impl Plan {
    pub(super) fn new(settings: &Settings) -> Plan {
        let (users, follows) = (settings.count, settings.get("follows"));
        let graph = Graph::new(settings.word("graph"), users);
        let of = |user| {
            let targets = (0..follows).map(|at| graph.target(user, at, follows, users));
            let mut targets: Vec<u32> =
                targets.filter(|target| *target != user).map(|target| target as u32).collect();
            targets.sort_unstable();
            targets.dedup();
            targets.shrink_to_fit();
            targets
        };
        let (posts, requests) = (settings.get("posts"), settings.get("requests"));
        let request = |index| {
            let draw = draw(REQUESTS, index);
            let kind = Kind::of(settings.word("part"), draw % 100);
            Request { kind, user: ((draw / 100) % users) as u32, time: users * posts + 1 + index }
        };
        let round = |round| (round * requests..(round + 1) * requests).map(request).collect();
        Plan {
            followees: (0..users).map(of).collect(),
            posts,
            rounds: (0..settings.get("rounds")).map(round).collect(),
        }
    }

    /// The posts before the clock, as requests.
    pub(super) fn before(&self) -> impl Iterator<Item = Request> + use<'_> {
        let users = self.users();
        (0..users * self.posts).map(move |index| Request {
            kind: Kind::Post,
            user: (index % users) as u32,
            time: index + 1,
        })
    }

    pub(super) fn users(&self) -> u64 {
        self.followees.len() as u64
    }

    /// Number of posts of the users that a user follows, before the clock.
    pub(super) fn timeline_before(&self, user: u32) -> u64 {
        self.followees[user as usize].len() as u64 * self.posts
    }

    pub(super) fn followers(&self) -> Vec<u64> {
        let mut followers = vec![0; self.followees.len()];
        for &target in self.followees.iter().flatten() {
            followers[target as usize] += 1;
        }
        followers
    }

    /// The sums that the service must have when all requests are done.
    pub(super) fn sums(&self) -> Sums {
        let mut profiles = vec![Vec::new(); self.followees.len()];
        let timed = self.rounds.iter().flatten().filter(|request| request.kind == Kind::Post);
        for post in self.before().chain(timed.copied()) {
            profiles[post.user as usize].push(post.time);
        }
        let newest_first = |times: &[u64]| sum(times.iter().rev().copied());
        let mut timeline = Vec::new();
        let timelines = self.followees.iter().map(|followees| {
            timeline.clear();
            for &target in followees {
                timeline.extend_from_slice(&profiles[target as usize]);
            }
            timeline.sort_unstable();
            newest_first(&timeline)
        });
        let timelines = timelines.sum();
        Sums { timelines, profiles: profiles.iter().map(|times| newest_first(times)).sum() }
    }
}

/// Returns a number that depends on the times of posts and on their order, newest first.
pub(super) fn sum(times: impl Iterator<Item = u64>) -> u64 {
    times.fold(0, |sum, time| (sum * 31 + time) & SUM_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads;

    fn plan(graph: &str, set: &[(&str, u64)]) -> Plan {
        let workload = workloads::find("social").expect("the workload exists");
        let mut settings = Settings::new(workload, 100, 2);
        for (name, value) in [("graph", graph.to_owned())]
            .into_iter()
            .chain(set.iter().map(|(name, value)| (*name, value.to_string())))
        {
            let key = workload.key(name).expect("the key exists");
            settings.set(name, key.kind.parse(&value).expect("the value is one of the key's"));
        }
        Plan::new(&settings)
    }

    #[test]
    fn the_draws_are_those_of_splitmix64() {
        // The first outputs for the seed 1234567, as in the test of its reference implementation.
        let outputs = [0, 1].map(|index| draw(1_234_567, index));
        assert_eq!(outputs, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn the_sums_are_those_of_the_erlang_peer() {
        let plan = plan("zipf", &[("follows", 25), ("posts", 10), ("requests", 1000)]);
        let trial = Sums { timelines: 55_900_215_197, profiles: 53_849_258_416 };
        assert_eq!(plan.sums(), trial, "its ?TRIAL has the same numbers");
    }

    #[test]
    fn a_sum_depends_on_each_post_and_on_the_order() {
        let sums = [&[3, 2, 1][..], &[3, 1, 2], &[3, 2], &[2, 1], &[]];
        let sums = sums.map(|times| sum(times.iter().copied()));
        for (index, sum) in sums.iter().enumerate() {
            assert!(!sums[..index].contains(sum), "{sums:?}");
        }
    }

    #[test]
    fn followers_are_equal_in_a_ring_and_many_for_the_first_users_of_zipf() {
        let settings = [("follows", 7), ("posts", 1), ("requests", 1)];
        assert_eq!(plan("ring", &settings).followers(), [7; 100]);
        let zipf = plan("zipf", &settings).followers();
        assert!(zipf[0] > 60 && zipf[50..].iter().all(|followers| *followers < 20), "{zipf:?}");
        let uniform = plan("uniform", &settings).followers();
        assert!(uniform.iter().all(|followers| *followers < 20), "{uniform:?}");
        // Nobody follows a user twice, or itself.
        let all = plan("ring", &[("follows", 250), ("posts", 1), ("requests", 1)]);
        assert_eq!(all.followers(), [99; 100]);
    }

    #[test]
    fn a_mix_has_four_timelines_in_five_requests() {
        let plan = plan("uniform", &[("requests", 10_000)]);
        let count = |kind| plan.rounds[0].iter().filter(|request| request.kind == kind).count();
        assert!((7_800..8_200).contains(&count(Kind::Timeline)));
        assert!((1_350..1_650).contains(&count(Kind::Profile)));
        assert!((400..600).contains(&count(Kind::Post)));
    }
}
