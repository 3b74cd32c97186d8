//! An author whom very many users follow and read at the same time.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

#[path = "support/cpu.rs"]
mod cpu;
mod support;

use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use social::{Name, Password, Post, Social, Text};
use throng::prelude::*;

use cpu::cpu_ns;
use support::on;

/// Posts that are measured.
const POSTS: usize = 5;

/// Calls at a time.
const CALLS: usize = 64;

fn reader(number: usize) -> Name {
    format!("reader_{number}").parse().unwrap()
}

fn author() -> Name {
    "author".parse().unwrap()
}

/// Calls `work` for the readers, some of them at a time.
async fn each(readers: usize, work: impl AsyncFn(Name)) {
    stream::iter(0..readers)
        .map(|number| work(reader(number)))
        .buffer_unordered(CALLS)
        .collect::<Vec<()>>()
        .await;
}

/// Figures of an author with a number of live followers.
struct Figures {
    /// Median time from a post to its acknowledgement, when all live timelines have it in their mailboxes.
    post: Duration,
    /// Processor time of a post for each follower, in nanoseconds.
    push_ns: f64,
    /// Processor time of asking the author for a page, in nanoseconds: what each read would cost in addition if the
    /// posts were pulled.
    pull_ns: f64,
}

/// Registers readers who follow the author, lets them read, and checks that each of them has every later post at once.
fn measure(readers: usize) -> Figures {
    let data = tempfile::tempdir().unwrap();
    let runtime = Runtime::builder().workers(2).start().unwrap();
    runtime.block_on(async |runtime| {
        on(runtime, data.path(), async |social| {
            let hashed = social.hash(Password::new("correct horse").unwrap()).await.unwrap();
            social.register_hashed(&author(), hashed.clone()).await.unwrap();
            let first = publish(social, "before the first read").await;
            each(readers, async |reader| {
                social.register_hashed(&reader, hashed.clone()).await.unwrap();
                social.follow(&reader, &author()).await.unwrap();
            })
            .await;
            has_first(social, readers, &first).await;

            let (mut times, busy, mut newest) = (Vec::new(), cpu_ns(), first);
            for number in 0..POSTS {
                let begun = Instant::now();
                newest = publish(social, &format!("post {number}")).await;
                times.push(begun.elapsed());
            }
            times.sort_unstable();
            // The acknowledgement leaves the changes in the mailboxes, and a read comes behind them.
            has_first(social, readers, &newest).await;
            let pushed = cpu_ns() - busy;
            let busy = cpu_ns();
            has_first(social, readers, &newest).await;
            let read = cpu_ns() - busy;

            let (busy, asked) = (cpu_ns(), readers.min(10_000));
            each(asked, async |_| {
                let page = social.posts(&author(), None, 20).await.unwrap();
                assert_eq!(page.posts.len(), POSTS + 1);
            })
            .await;
            Figures {
                post: times[POSTS / 2],
                push_ns: (pushed - read) / (POSTS * readers) as f64,
                pull_ns: (cpu_ns() - busy) / asked as f64,
            }
        })
        .await
    })
}

async fn publish(social: &Social, text: &str) -> Post {
    social.post(&author(), Text::new(text).unwrap(), None).await.unwrap().post
}

/// Checks that the readers' timelines begin with a post.
async fn has_first(social: &Social, readers: usize, post: &Post) {
    each(readers, async |reader| {
        let timeline = social.timeline(&reader, None, 20).await.unwrap();
        assert_eq!(timeline.posts.first(), Some(post), "{reader}");
    })
    .await;
}

#[test]
fn every_live_follower_of_a_large_author_has_each_post_at_its_acknowledgement() {
    measure(1_000);
}

/// Prints the cost of a post, and of the pull that it saves each reader:
/// `cargo test --release -p social --test large_author -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_large_author() {
    for readers in [1_000, 10_000, 99_000] {
        let Figures { post, push_ns, pull_ns } = measure(readers);
        println!(
            "{readers} live followers: {post:?} for a post, {push_ns:.0} ns for each follower; a pull takes {pull_ns:.0} ns"
        );
    }
}
