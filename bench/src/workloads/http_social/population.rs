//! The users of the service, the same for the server that registers them and for the client.

use crate::settings::Settings;
use crate::workloads::records::Random;

#[derive(Clone, Copy)]
pub(super) struct Population {
    pub(super) users: u64,
    follows: u64,
    /// Number of posts of each at the start.
    pub(super) posts: u64,
}

impl Population {
    pub(super) fn of(settings: &Settings) -> Population {
        let users = settings.get("users");
        // Nobody follows themselves.
        let follows = settings.get("follows").min(users - 1);
        Population { users, follows, posts: settings.get("posts") }
    }

    /// The users that a user follows, at random, in ascending order.
    pub(super) fn followed(&self, user: u64) -> Vec<u64> {
        let mut random = Random::new(user);
        let mut followed = Vec::new();
        while (followed.len() as u64) < self.follows {
            let other = random.below(self.users);
            if other != user && !followed.contains(&other) {
                followed.push(other);
            }
        }
        followed.sort_unstable();
        followed
    }
}

pub(super) fn name(user: u64) -> String {
    format!("user_{user}")
}

pub(super) fn number(name: &str) -> Option<u64> {
    name.strip_prefix("user_")?.parse().ok()
}

/// Text of a user's post, about as long as a usual one.
pub(super) fn text(user: u64, post: u64) -> String {
    format!(
        "post {post} of user_{user}: a short message, as people write them when they are in a hurry"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_follows_the_given_number_of_other_users() {
        let population = Population { users: 30, follows: 25, posts: 1 };
        for user in 0..30 {
            let followed = population.followed(user);
            assert_eq!(followed.len(), 25);
            assert!(followed.is_sorted_by(|a, b| a < b));
            assert!(followed.iter().all(|&other| other != user && other < 30));
            assert_eq!(number(&name(user)), Some(user));
        }
    }
}
