//! A pool of workers with backpressure: full mailboxes hold the producer back, no job is lost, and
//! the sum of the results is checked.
//!
//! ```text
//!  producer ──deliver──► mailbox of 4 ─► worker ─┐
//!     ▲                  mailbox of 4 ─► worker ─┼─done──► pool ──► total, once all have come
//!     └── waits where     …              worker ─┘          ▲
//!         there is no room                   └─ monitor: a dead worker is an error of the total
//! ```
//!
//! Run it: `cargo run -p throng-examples --bin worker_pool`. Output: the number of primes below
//! 100,000, counted in 100 jobs by 4 workers.

use throng::{MailboxBound, Overflow, prelude::*};

const WORKERS: usize = 4;
const JOBS: u64 = 100;
const NUMBERS_PER_JOB: u64 = 1_000;
/// Number of primes below 100,000, from a table.
const PRIMES: u64 = 9_592;

/// A process that counts primes.
struct Worker {
    pool: Address<Pool>,
}

#[process]
impl Worker {
    /// Counts the primes among 1,000 numbers from `first` on, and reports the count to the pool.
    #[message(send)]
    fn count(&mut self, cx: &mut Context<Self>, first: u64) {
        let primes = (first..first + NUMBERS_PER_JOB).filter(|&number| is_prime(number)).count();
        if self.pool.done(primes as u64).is_err() {
            cx.stop(ExitReason::other("the pool has gone"));
        }
    }
}

fn is_prime(number: u64) -> bool {
    let mut divisors = (2..).take_while(|divisor| divisor * divisor <= number);
    number >= 2 && !divisors.any(|divisor| number.is_multiple_of(divisor))
}

/// The process that owns the workers and adds up their results.
#[derive(Default)]
struct Pool {
    results: u64,
    total: u64,
    failure: Option<ExitReason>,
    /// The question for the total, and the number of results it waits for.
    asked: Option<(u64, ReplyTo<Result<u64, ExitReason>>)>,
}

#[process]
impl Pool {
    /// Starts workers whose mailboxes hold four jobs each.
    #[message]
    fn start(&mut self, cx: &mut Context<Self>, workers: usize) -> Vec<Address<Worker>> {
        let (pool, bound) = (cx.address(), MailboxBound::new(4, Overflow::Wait));
        // A runtime without room for all of them gives fewer workers.
        let spawn = |_| cx.monitored().mailbox(bound).spawn(Worker { pool }).ok();
        (0..workers).filter_map(spawn).collect()
    }

    /// Takes the result of a job.
    #[message(send)]
    fn done(&mut self, primes: u64) {
        self.results += 1;
        self.total += primes;
        self.answer();
    }

    /// Replies with the sum of `results` results once they have come, or with the reason why a
    /// worker exited before.
    #[message]
    fn total(&mut self, results: u64, reply: ReplyTo<Result<u64, ExitReason>>) {
        self.asked = Some((results, reply));
        self.answer();
    }

    #[hook]
    fn down(&mut self, down: Down) {
        self.failure = Some(down.reason);
        self.answer();
    }

    fn answer(&mut self) {
        let is_due = |(results, _): &mut _| *results <= self.results || self.failure.is_some();
        if let Some((_, reply)) = self.asked.take_if(is_due) {
            // A caller that has given up needs no answer.
            let _ = reply.send(self.failure.clone().map_or(Ok(self.total), Err));
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().start()?;
    runtime.block_on(async |runtime| {
        let pool = runtime.spawn(Pool::default())?;
        let workers = pool.start(WORKERS).await?;
        println!("{} workers", workers.len());

        for (job, &worker) in (0..JOBS).zip(workers.iter().cycle()) {
            let job = Count { first: job * NUMBERS_PER_JOB };
            // `send` never waits: a full mailbox hands the job back. `deliver` waits for room.
            match worker.send(job) {
                Err(SendError::Overloaded(job)) => worker.deliver(job).await?,
                sent => sent?,
            }
        }

        let total =
            pool.total(JOBS).await?.map_err(|reason| format!("a worker exited: {reason}"))?;
        println!("{JOBS} jobs, {total} primes");
        if total != PRIMES {
            return Err(format!("there are {PRIMES} primes").into());
        }
        Ok(())
    })
}
