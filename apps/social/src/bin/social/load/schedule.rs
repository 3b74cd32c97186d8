//! The workload as data: a request for each arrival, and the times of arrivals, drawn from a seed.
//!
//! Invariants: the same seed, rate, mix and number of users give the same sequence, on every
//! machine and whatever the node does. The sequence is drawn lazily, so its memory does not depend
//! on the duration.

use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use fastrand::Rng;
use serde::Serialize;

/// Kind of a request, by which latencies are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Reads the first page of a user's timeline.
    Timeline,
    Profile,
    /// Reads the first page of a user's own posts.
    Listing,
    Post,
    /// Follows a user, or ends the follow.
    Follow,
    /// Says a message in the room, by a socket, until it is stored.
    Say,
}

impl Kind {
    /// Returns the name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Timeline => "timeline",
            Kind::Profile => "profile",
            Kind::Listing => "listing",
            Kind::Post => "post",
            Kind::Follow => "follow",
            Kind::Say => "say",
        }
    }
}

/// Shares of the kinds of requests, in any unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Mix {
    pub(crate) reads: u32,
    pub(crate) posts: u32,
    pub(crate) follows: u32,
    pub(crate) rooms: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a mix is a list of shares of reads, posts, follows and rooms, each a whole number up to \
     1000000, such as reads=80,posts=15,follows=5"
)]
pub(crate) struct MixError;

impl FromStr for Mix {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Mix, MixError> {
        let mut mix = Mix { reads: 0, posts: 0, follows: 0, rooms: 0 };
        for share in text.split(',') {
            let (name, share) = share.split_once('=').ok_or(MixError)?;
            let place = match name {
                "reads" => &mut mix.reads,
                "posts" => &mut mix.posts,
                "follows" => &mut mix.follows,
                "rooms" => &mut mix.rooms,
                _ => return Err(MixError),
            };
            *place = share.parse().ok().filter(|share| *share <= SHARE_MAX).ok_or(MixError)?;
        }
        if mix.total() == 0 { Err(MixError) } else { Ok(mix) }
    }
}

impl Mix {
    fn total(self) -> u32 {
        self.reads + self.posts + self.follows + self.rooms
    }
}

/// Request to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    /// Index of the user that sends it.
    pub(crate) user: usize,
    /// Index of another user, whom it reads or follows.
    pub(crate) other: usize,
    /// Whether a follow is ended.
    pub(crate) undo: bool,
}

/// Endless sequence of requests.
#[derive(Clone, Debug)]
pub(crate) struct Plans {
    rng: Rng,
    mix: Mix,
    users: usize,
}

impl Plans {
    /// Draws from `seed` for users 0 to `users`, which are at least two.
    pub(crate) fn new(seed: u64, mix: Mix, users: usize) -> Plans {
        Plans { rng: Rng::with_seed(seed), mix, users: users.max(2) }
    }
}

impl Iterator for Plans {
    type Item = Plan;

    fn next(&mut self) -> Option<Plan> {
        let Mix { reads, posts, follows, .. } = self.mix;
        let draw = self.rng.u32(..self.mix.total());
        let kind = if draw < reads {
            // A reader opens the own timeline as often as the pages of others.
            match self.rng.u32(..4) {
                0 | 1 => Kind::Timeline,
                2 => Kind::Profile,
                _ => Kind::Listing,
            }
        } else if draw < reads + posts {
            Kind::Post
        } else if draw < reads + posts + follows {
            Kind::Follow
        } else {
            Kind::Say
        };
        let user = self.rng.usize(..self.users);
        let other = (user + self.rng.usize(1..self.users)) % self.users;
        // Follows that only grew would soon change nothing, as everybody followed everybody.
        let undo = self.rng.bool();
        Some(Plan { kind, user, other, undo })
    }
}

/// Distribution of the times between arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Arrivals {
    /// Exponential, as from many independent users
    Poisson,
    /// Equal
    Even,
}

/// Endless sequence of times of arrival, since the start of the run.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    rng: Rng,
    arrivals: Arrivals,
    rate: f64,
    /// Time of the last arrival, in mean intervals, so that even arrivals do not drift.
    at: f64,
}

impl Times {
    /// Draws from `seed` arrivals at `rate` per second, which is positive.
    pub(crate) fn new(seed: u64, arrivals: Arrivals, rate: f64) -> Times {
        Times { rng: Rng::with_seed(seed), arrivals, rate, at: 0.0 }
    }
}

impl Iterator for Times {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.at += match self.arrivals {
            Arrivals::Even => 1.0,
            // `f64` is below 1, so the logarithm is finite.
            Arrivals::Poisson => -(1.0 - self.rng.f64()).ln(),
        };
        Duration::try_from_secs_f64(self.at / self.rate).ok()
    }
}

/// Maximum of a share, so that the sum of all shares fits.
const SHARE_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MIX: Mix = Mix { reads: 80, posts: 15, follows: 5, rooms: 0 };

    #[test]
    fn a_seed_gives_the_same_schedule_and_the_same_requests() {
        let times = |seed| Times::new(seed, Arrivals::Poisson, 500.0).take(1000);
        assert!(times(7).eq(times(7)) && !times(7).eq(times(8)));
        let plans = |seed| Plans::new(seed, MIX, 20).take(1000);
        assert!(plans(7).eq(plans(7)) && !plans(7).eq(plans(8)));
        // The numbers themselves: a change of them makes results incomparable with earlier ones.
        let micros: Vec<u128> = times(7).take(3).map(|at| at.as_micros()).collect();
        assert_eq!(micros, FIRST_OF_SEED_7);
    }

    const FIRST_OF_SEED_7: [u128; 3] = [2968, 3472, 6006];

    #[test]
    fn arrivals_keep_the_rate_and_the_requests_keep_the_mix() {
        for arrivals in [Arrivals::Poisson, Arrivals::Even] {
            let last = Times::new(1, arrivals, 500.0).nth(49_999).unwrap().as_secs_f64();
            assert!((98.0..102.0).contains(&last), "{arrivals:?}: {last}");
        }
        let mut even = Times::new(1, Arrivals::Even, 4.0);
        assert_eq!(even.next(), Some(Duration::from_millis(250)));
        assert_eq!(even.next(), Some(Duration::from_millis(500)));

        let plans: Vec<Plan> = Plans::new(1, MIX, 3).take(100_000).collect();
        for (kind, percent) in [
            (Kind::Timeline, 40.0),
            (Kind::Profile, 20.0),
            (Kind::Listing, 20.0),
            (Kind::Post, 15.0),
            (Kind::Follow, 5.0),
            (Kind::Say, 0.0),
        ] {
            let drawn = plans.iter().filter(|plan| plan.kind == kind).count() as f64 / 1000.0;
            assert!((drawn - percent).abs() < 1.0, "{kind:?}: {drawn}");
        }
        assert!(plans.iter().all(|plan| plan.user != plan.other && plan.user.max(plan.other) < 3));
    }

    #[test]
    fn a_mix_names_shares_of_known_kinds() {
        assert_eq!("reads=80,posts=15,follows=5".parse(), Ok(MIX));
        let rooms = Mix { reads: 0, posts: 0, follows: 0, rooms: 1 };
        assert_eq!("rooms=1".parse(), Ok(rooms));
        for wrong in ["", "reads", "reads=0", "reads=-1", "likes=1", "reads=1,", "posts=1000001"] {
            assert_eq!(wrong.parse::<Mix>(), Err(MixError), "{wrong}");
        }
    }
}
