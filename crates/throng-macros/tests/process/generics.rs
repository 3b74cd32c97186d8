//! Processes with type parameters.

use crate::runtime;
use std::collections::HashMap;
use std::hash::Hash;
use throng::prelude::*;

struct Cache<K, V, const N: usize> {
    entries: HashMap<K, V>,
}

#[process]
impl<K: Hash + Eq, V, const N: usize> Cache<K, V, N>
where
    K: Send + 'static,
    V: Clone + Send + 'static,
{
    #[message]
    fn put(&mut self, key: K, value: V) {
        if self.entries.len() < N {
            self.entries.insert(key, value);
        }
    }

    /// The message names `V` only in the reply.
    #[message]
    async fn get(&mut self, key: K) -> Option<V> {
        self.entries.get(&key).cloned()
    }

    #[message]
    fn count(&mut self) -> usize {
        self.entries.len()
    }

    #[message]
    fn refill(&mut self, entries: [(K, V); N]) {
        self.entries = entries.into();
    }
}

#[test]
fn messages_have_the_parameters_they_need() {
    let runtime = runtime();
    let cache: Address<Cache<&str, f64, 2>> =
        runtime.spawn(Cache { entries: HashMap::new() }).unwrap();
    let other = runtime.spawn(Cache::<u8, (), 1> { entries: HashMap::new() }).unwrap();
    runtime
        .block_on(async |_| {
            cache.put("a", 1.0).await?;
            cache.send(Put { key: "b", value: 2.0 })?;
            cache.send_put("c", 3.0)?;
            assert_eq!(cache.get("b").await?, Some(2.0));
            assert_eq!(cache.call(Get::new("c")).await?, None);
            // Without a parameter, both have the same message.
            assert_eq!(cache.call(Count).await?, 2);
            assert_eq!(other.call(Count).await?, 0);
            cache.refill([("d", 4.0), ("e", 5.0)]).await?;
            assert_eq!(cache.get("d").await?, Some(4.0));
            Ok::<_, throng::Error>(())
        })
        .unwrap();
}

struct Worker<J> {
    done: Vec<J>,
}

trait Job: Send + 'static {
    type Output: Clone + Send + 'static;
    fn run(&self) -> Self::Output;
}

#[process]
impl<J: Job> Worker<J>
where
    Self: Sized,
    J::Output: PartialEq,
{
    #[message]
    fn work(&mut self, job: J) -> J::Output {
        let output = job.run();
        self.done.push(job);
        output
    }
}

struct Double(u32);

impl Job for Double {
    type Output = u32;
    fn run(&self) -> u32 {
        2 * self.0
    }
}

#[test]
fn replies_may_be_associated_types() {
    let runtime = runtime();
    let worker = runtime.spawn(Worker { done: Vec::new() }).unwrap();
    assert_eq!(runtime.block_on(async |_| worker.work(Double(4)).await).unwrap(), 8);
}
