//! `send-cost`: the time that a message takes of its sender, measured as an article on Elixir does, and
//! the time until it is handled.
//!
//! ```text
//! driver    call × 10 │ for 1 ms │ … │ for `count` ms │ the same with a send instead of a call
//!                                    ├── local_ns ────┤
//!
//! a round   suspend, `depth` messages │ let go, send × R │ wait until the receiver confirms │
//!                                     ├── send_ns ───────┤
//!                                     ├── delivered_ns ─────────────────────────────────────┤
//! ```
//!
//! - As in the source, each loop tells how many calls the next, longer loop makes: 10 calls, then loops of a
//!   millisecond, of those of 500, 3000 and 10,000 ms that are shorter than `count`, and of `count`. The
//!   metrics are those of the last loop. Only the last loop has a `depth`. A loop that takes less than half
//!   of its length is made again, twice at most, because the loop before it was slow for another reason:
//!   caches, a compiler, another program. The source lacks this.
//! - The source sends without end; here at most [`ROUND_BYTES`] are on the way. The receiver confirms each
//!   round, and `send_ns` is the sum over the rounds of the sender's time alone. Each round begins with a
//!   receiver at rest, whose wake-up is in both metrics; the wait at the end, some microseconds in a
//!   million messages of 8 bytes or in a thousand of 64 KiB, is in `delivered_ns` only.
//! - Bytes are copied from the sender's buffer for each message. Their first and last byte differ from message
//!   to message, so that a message that shared the buffer would be wrong in the sum.
//! - A suspended receiver takes no message. `delivered_ns` includes the handling of the `depth` messages,
//!   which come first; it is divided by the messages of the loop only.
use std::hint::black_box;
use std::marker::PhantomData;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::prelude::*;
use super::tally::{Tally, sum_below};
use crate::host::{Host, Next, OnHost, Receiver, on_host};

pub(crate) fn run(row: &str, settings: &Settings) -> Measured {
    match settings.get("payload") {
        0 => on_host::<SendCost<u64>>(row, settings),
        _ => on_host::<SendCost<Vec<u8>>>(row, settings),
    }
}

struct SendCost<P>(PhantomData<P>);

const FIRST_CALLS: u64 = 10;

/// Lengths of the source's loops after the first, in milliseconds.
const SOURCE_MS: [u64; 4] = [1, 500, 3000, 10_000];

/// Number of times that a loop is made, at most, until it takes half of its length.
const ATTEMPTS: u32 = 3;

/// Bytes of the messages of a round, at most, each counted with [`MESSAGE_BYTES`].
const ROUND_BYTES: u64 = 64 << 20;

/// Bytes that a message is counted with besides those that it carries.
const MESSAGE_BYTES: u64 = 64;

/// Messages that confirmed rounds had, those in the mailbox before included.
static RECEIVED: AtomicU64 = AtomicU64::new(0);
/// Confirmed rounds, and the sum of their messages.
static CONFIRMED: Tally = Tally::new();
static RELEASES: Semaphore = Semaphore::const_new(0);

trait Payload: Send + Unpin + 'static {
    /// Makes the content of a message; `buffer` has the sender's bytes.
    fn make(buffer: &mut [u8], number: u64) -> Self;

    /// The number that the receiver adds up.
    fn value(&self) -> u64;

    /// The sum of the values of the first `count` messages made from a buffer of this length.
    fn sum(count: u64, length: u64) -> u64;
}

impl Payload for u64 {
    fn make(_: &mut [u8], number: u64) -> u64 {
        number
    }

    fn value(&self) -> u64 {
        *self
    }

    fn sum(count: u64, _: u64) -> u64 {
        sum_below(count)
    }
}

impl Payload for Vec<u8> {
    fn make(buffer: &mut [u8], number: u64) -> Vec<u8> {
        if let Some(first) = buffer.first_mut() {
            *first = number as u8;
        }
        if let Some(last) = buffer.last_mut() {
            *last = number as u8;
        }
        buffer.to_vec()
    }

    fn value(&self) -> u64 {
        let of = |byte: Option<&u8>| byte.copied().map_or(0, u64::from);
        self.len() as u64 + of(self.first()) + of(self.last())
    }

    fn sum(count: u64, length: u64) -> u64 {
        let bytes = count / 256 * sum_below(256) + sum_below(count % 256);
        count * length + 2 * bytes
    }
}

/// A message to the receiver. Beside bytes the other entries take no room of their own.
enum Entry<P> {
    Item(P),
    /// The receiver takes no message until it is let go.
    Suspend,
    Confirm,
}

/// The receiver's state: the messages that it has received since it confirmed a round.
struct Account<P> {
    count: u64,
    sum: u64,
    payload: PhantomData<fn(P)>,
}

impl<P: Payload> Receiver for Account<P> {
    type Message = Entry<P>;
    type Pause = &'static Semaphore;

    fn receive(&mut self, entry: Entry<P>) -> Next<Self::Pause> {
        match entry {
            Entry::Item(payload) => {
                self.count += 1;
                self.sum = self.sum.wrapping_add(payload.value());
            }
            Entry::Suspend => return Next::Wait(&RELEASES),
            Entry::Confirm => {
                RECEIVED.fetch_add(mem::take(&mut self.count), Ordering::Relaxed);
                CONFIRMED.add(mem::take(&mut self.sum));
            }
        }
        Next::Message
    }
}

#[derive(Default)]
struct Sending {
    sent: Duration,
    delivered: Duration,
}

struct Sender<P: Payload, H: Host> {
    receiver: H::Address<Account<P>>,
    buffer: Vec<u8>,
    /// Messages and rounds that were sent, and the messages' sum.
    sent: u64,
    rounds: u64,
    sum: u64,
}

impl<P: Payload, H: Host> Sender<P, H> {
    /// Sends messages in rounds, each to a mailbox in which `depth` messages wait.
    async fn send_all(&mut self, count: u64, depth: u64) -> Sending {
        let round = (ROUND_BYTES / (self.buffer.len() as u64 + MESSAGE_BYTES)).max(1);
        let mut sending = Sending::default();
        let mut left = count;
        while left > 0 {
            let now = left.min(round);
            left -= now;
            self.rounds += 1;
            CONFIRMED.arm(self.rounds);
            if depth > 0 {
                H::send(&self.receiver, Entry::Suspend);
                self.send(depth);
                RELEASES.add_permits(1);
            }
            let clock = Instant::now();
            self.send(now);
            sending.sent += clock.elapsed();
            H::send(&self.receiver, Entry::Confirm);
            CONFIRMED.complete().await;
            sending.delivered += clock.elapsed();
            if CONFIRMED.count() != self.rounds {
                break;
            }
        }
        sending
    }

    fn send(&mut self, count: u64) {
        for number in 0..count {
            H::send(&self.receiver, Entry::Item(P::make(&mut self.buffer, number)));
        }
        self.sent += count;
        self.sum = self.sum.wrapping_add(P::sum(count, self.buffer.len() as u64));
    }
}

/// The loop of local calls; returns the number of calls made, and their time.
fn call_all(count: u64) -> (u64, Duration) {
    let clock = Instant::now();
    let mut made = black_box(0);
    for _ in 0..count {
        made = call(made);
    }
    (black_box(made), clock.elapsed())
}

#[inline(never)]
fn call(made: u64) -> u64 {
    made + 1
}

/// Lengths of the loops after the first, in milliseconds.
fn lengths(count: u64) -> impl Iterator<Item = u64> {
    SOURCE_MS.into_iter().filter(move |length| *length < count).chain([count])
}

/// The number of calls that take some milliseconds if so many took so long.
fn calls_in(milliseconds: u64, calls: u64, took: Duration) -> u64 {
    let all = u128::from(milliseconds) * 1_000_000 * u128::from(calls);
    (all / took.as_nanos().max(1)).max(1) as u64
}

fn is_long_enough(took: Duration, milliseconds: u64) -> bool {
    took >= Duration::from_millis(milliseconds) / 2
}

impl<P: Payload> OnHost for SendCost<P> {
    async fn measure<H: Host>(host: H, settings: Settings) -> Measured {
        let (longest, depth) = (settings.count, settings.get("depth"));
        let mut calls = FIRST_CALLS;
        let (mut made, mut local) = call_all(calls);
        for length in lengths(longest) {
            for _ in 0..ATTEMPTS {
                calls = calls_in(length, calls, local);
                (made, local) = call_all(calls);
                if is_long_enough(local, length) {
                    break;
                }
            }
        }

        let buffer = vec![0; settings.get("payload") as usize];
        let account = Account { count: 0, sum: 0, payload: PhantomData::<fn(P)> };
        let receiver = host.start(account).await?;
        let mut sender: Sender<P, H> = Sender { receiver, buffer, sent: 0, rounds: 0, sum: 0 };
        let mut messages = FIRST_CALLS;
        let mut sending = sender.send_all(messages, 0).await;
        for length in lengths(longest) {
            let depth = if length == longest { depth } else { 0 };
            for _ in 0..ATTEMPTS {
                messages = calls_in(length, messages, sending.sent);
                sending = sender.send_all(messages, depth).await;
                if is_long_enough(sending.sent, length) {
                    break;
                }
            }
        }

        let mut outcome = Outcome::default();
        outcome.metric("local_ns", local.as_nanos() as f64 / calls as f64);
        outcome.metric("send_ns", sending.sent.as_nanos() as f64 / messages as f64);
        outcome.metric("delivered_ns", sending.delivered.as_nanos() as f64 / messages as f64);
        outcome.check("local calls", made, calls);
        outcome.check("rounds that were confirmed", CONFIRMED.count(), sender.rounds);
        outcome.check("messages received", RECEIVED.load(Ordering::Relaxed), sender.sent);
        outcome.check("the sum received", CONFIRMED.sum(), sender.sum);
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_that_of_the_values_made() {
        for length in [1, 2, 8, 300] {
            for count in [0, 1, 2, 255, 256, 257, 1000] {
                let mut buffer = vec![0; length];
                let made = |number| Vec::make(&mut buffer, number).value();
                let sum: u64 = (0..count).map(made).sum();
                assert_eq!(<Vec<u8>>::sum(count, length as u64), sum, "{count} of {length}");
            }
        }
        let sum: u64 = (0..100).map(|number| u64::make(&mut [], number)).sum();
        assert_eq!(u64::sum(100, 0), sum);
    }

    #[test]
    fn the_loops_are_the_sources_up_to_the_longest() {
        let of = |count| lengths(count).collect::<Vec<_>>();
        assert_eq!(of(1), [1]);
        assert_eq!(of(500), [1, 500]);
        assert_eq!(of(3000), [1, 500, 3000]);
        assert_eq!(of(10_000), [1, 500, 3000, 10_000]);
        assert_eq!(of(20), [1, 20]);
    }

    #[test]
    fn a_loop_is_as_long_as_the_one_before_tells() {
        assert_eq!(calls_in(500, 1000, Duration::from_millis(1)), 500_000);
        assert_eq!(calls_in(1, 10, Duration::ZERO), 10_000_000);
        assert_eq!(calls_in(1, 1, Duration::from_secs(1)), 1);
    }
}
