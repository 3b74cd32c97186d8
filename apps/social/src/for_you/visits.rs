//! Visits: the order of the posts that a reader pages through, in memory.
//!
//! Each reader has a process with the last [`PER_READER_MAX`] visits, so that the pages of a visit have no post
//! twice while posts and likes arrive. The process keeps no texts of posts, and ends after [`IDLE`] without a page.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use throng::prelude::*;
use throng::{Registry, Timeout};

use super::score::Candidate;
use crate::error::{SocialError, unavailable};
use crate::ids::unique_micros;
use crate::name::Name;

/// The visits of a service's readers; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Visits(Registry<Name, ReaderVisits>);

impl Visits {
    pub(crate) fn new(runtime: &RuntimeHandle) -> Visits {
        Visits(Registry::new(runtime))
    }

    /// Keeps a visit, and returns its number; `None` if too many readers have visits.
    pub(super) async fn begin(
        &self,
        reader: &Name,
        posts: &Arc<[Candidate]>,
    ) -> Result<Option<u64>, SocialError> {
        let number = unique_micros();
        for _ in 0..ATTEMPTS {
            if self.0.get(reader).is_none() && self.0.len() >= READERS_MAX {
                return Ok(None);
            }
            let visits = self.0.get_or_spawn(reader.clone(), ReaderVisits::default);
            let visits = visits.map_err(|error| unavailable(throng::Error::from(error)))?;
            match visits.call(Begin { number, posts: posts.clone() }).await {
                Ok(()) => return Ok(Some(number)),
                // The process has ended, because the reader read no page for a while: start another.
                Err(CallError::NoProcess(_) | CallError::Died(_)) => {}
                Err(error) => return Err(unavailable(throng::Error::from(error))),
            }
        }
        Ok(None)
    }

    /// Returns the posts of a visit.
    ///
    /// # Errors
    /// [`VisitOver`](SocialError::VisitOver) if the visit is gone.
    pub(super) async fn find(
        &self,
        reader: &Name,
        number: u64,
    ) -> Result<Arc<[Candidate]>, SocialError> {
        let visits = self.0.get(reader).ok_or(SocialError::VisitOver)?;
        match visits.call(Find { number }).await {
            Ok(found) => found.ok_or(SocialError::VisitOver),
            Err(CallError::NoProcess(_) | CallError::Died(_)) => Err(SocialError::VisitOver),
            Err(error) => Err(unavailable(throng::Error::from(error))),
        }
    }
}

#[derive(Default)]
struct ReaderVisits {
    /// Visits by their numbers, oldest first.
    visits: VecDeque<(u64, Arc<[Candidate]>)>,
    /// Timer until the process ends, set by each page.
    idle: Timeout,
}

#[process(client = VisitsClient)]
impl ReaderVisits {
    /// Keeps a visit, and drops the oldest one if there are too many.
    #[message]
    fn begin(&mut self, cx: &mut Context<Self>, number: u64, posts: Arc<[Candidate]>) {
        self.idle.set(cx, IDLE, Leave {});
        self.visits.push_back((number, posts));
        if self.visits.len() > PER_READER_MAX {
            self.visits.pop_front();
        }
    }

    /// Returns the posts of a visit, if the process has it.
    #[message]
    fn find(&mut self, cx: &mut Context<Self>, number: u64) -> Option<Arc<[Candidate]>> {
        self.idle.set(cx, IDLE, Leave {});
        self.visits.iter().find(|(known, _)| *known == number).map(|(_, posts)| posts.clone())
    }

    /// Ends the process after a time without pages.
    #[message(send)]
    fn leave(&self, cx: &mut Context<Self>) {
        cx.stop_if_idle();
    }
}

/// Maximum number of visits of a reader: for a page that was opened twice, or was just opened again.
const PER_READER_MAX: usize = 2;

/// Maximum number of readers with visits, each with up to 40 KB of ids and names. Further readers get the first page
/// alone.
const READERS_MAX: usize = 10_000;

/// Time without pages after which the visits of a reader end.
const IDLE: Duration = Duration::from_secs(300);

/// Maximum number of attempts to begin a visit, each with a process that ends before it answers.
const ATTEMPTS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::wait_until;

    #[test]
    fn a_reader_has_the_last_two_visits_until_the_process_ends() {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        runtime.block_on(async |runtime| {
            let (visits, alice) = (Visits::new(runtime), "alice".parse::<Name>().unwrap());
            let posts: Arc<[Candidate]> = Arc::new([]);
            let mut numbers = Vec::new();
            for _ in 0..3 {
                numbers.push(visits.begin(&alice, &posts).await.unwrap().unwrap());
            }
            for (number, is_there) in [(numbers[0], false), (numbers[1], true), (numbers[2], true)]
            {
                let found = visits.find(&alice, number).await;
                assert_eq!(found.is_ok(), is_there, "{found:?}");
            }
            let bob = "bob".parse::<Name>().unwrap();
            let others = visits.find(&bob, numbers[2]).await;
            assert!(matches!(others, Err(SocialError::VisitOver)));

            visits.0.get(&alice).unwrap().send(Leave {}).unwrap();
            wait_until(async || visits.0.get(&alice).is_none()).await;
            let over = visits.find(&alice, numbers[2]).await;
            assert!(matches!(over, Err(SocialError::VisitOver)), "{over:?}");
            assert!(visits.begin(&alice, &posts).await.unwrap().is_some());
        });
    }
}
