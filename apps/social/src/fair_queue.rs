//! A queue for a few resources, fair among clients, and within a client among names.
//!
//! ```text
//! a resource is given back
//!        │
//!        ▼      ┌─► 10.0.0.1 ─┬─► alice   1 2 3
//!   the client  │             └─► bob     4
//!   whose turn ─┼─► 10.0.0.2 ───► carol   5
//!   it is       └─► …
//! ```
//!
//! Clients take turns; within a client, names take turns; within a name, waiters are served in
//! order of arrival. A flood of requests from one address, or for one name, delays and displaces
//! only its own requests.
//!
//! Invariants: a resource is idle only while there is no waiter, and there are at most
//! `waiting_max` waiters. A newcomer to a full queue displaces the last waiter of the client with
//! most waiters, if that client then still has at least as many as the newcomer's client. Otherwise
//! the same rule applies among the names of the newcomer's client. If neither applies, the newcomer
//! is refused. No waker runs while the lock is held.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indexmap::IndexMap;
use throng_node::http::ClientAddress;
use tokio::sync::oneshot;

use crate::name::Name;

/// Handle of the queue; clones share the same queue.
#[derive(Debug)]
pub(crate) struct FairQueue<R>(Arc<Mutex<QueueState<R>>>);

/// The queue is full, and the newcomer displaces no waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// Grants the use of a resource until dropped.
#[derive(Debug)]
pub(crate) struct BorrowGuard<R> {
    /// Present until the guard is dropped.
    resource: Option<R>,
    queue: FairQueue<R>,
}

#[derive(Debug)]
struct QueueState<R> {
    idle: Vec<R>,
    waiting: usize,
    waiting_max: usize,
    /// Clients in the order of their turns, each with at least one waiter.
    clients: IndexMap<IpAddr, ClientQueue<R>>,
}

/// Names in the order of their turns, each with at least one waiter. All invalid names together are
/// `None`.
type ClientQueue<R> = IndexMap<Option<Name>, VecDeque<Waiter<R>>>;

type Waiter<R> = oneshot::Sender<BorrowGuard<R>>;

/// Position of a waiter, which leaves the queue when dropped.
struct WaitGuard<'q, R> {
    queue: &'q FairQueue<R>,
    address: IpAddr,
    name: Option<Name>,
    receiver: oneshot::Receiver<BorrowGuard<R>>,
}

impl<R> FairQueue<R> {
    pub(crate) fn new(resources: Vec<R>, waiting_max: usize) -> FairQueue<R> {
        let clients = IndexMap::new();
        let state = QueueState { idle: resources, waiting: 0, waiting_max, clients };
        FairQueue(Arc::new(Mutex::new(state)))
    }

    /// Waits for the use of a resource, on behalf of a client and a name.
    ///
    /// # Errors
    /// The queue is full, or a newcomer displaced this waiter.
    pub(crate) async fn borrow(
        &self,
        client: IpAddr,
        name: Option<&Name>,
    ) -> Result<BorrowGuard<R>, QueueFull> {
        let mut place = self.enter(ClientAddress(client).network(), name.cloned())?;
        // The sender is dropped when a newcomer displaces this waiter.
        (&mut place.receiver).await.map_err(|_| QueueFull)
    }

    fn enter(&self, address: IpAddr, name: Option<Name>) -> Result<WaitGuard<'_, R>, QueueFull> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        if let Some(resource) = state.idle.pop() {
            drop(state);
            // The receiver is alive, so sending cannot fail.
            let _ = sender.send(self.lend(resource));
        } else {
            let displaced = if state.waiting < state.waiting_max {
                None
            } else {
                Some(state.displace(address, &name).ok_or(QueueFull)?)
            };
            state.waiting += 1;
            let names = state.clients.entry(address).or_default();
            names.entry(name.clone()).or_default().push_back(sender);
            drop(state);
            drop(displaced); // wakes the displaced waiter
        }
        Ok(WaitGuard { queue: self, address, name, receiver })
    }

    fn lend(&self, resource: R) -> BorrowGuard<R> {
        BorrowGuard { resource: Some(resource), queue: self.clone() }
    }

    /// Hands the resource to the next waiter, or keeps it as idle.
    fn give_back(&self, mut resource: R) {
        loop {
            let mut state = self.state();
            let Some(waiter) = state.pop() else {
                state.idle.push(resource);
                return;
            };
            drop(state);
            match waiter.send(self.lend(resource)) {
                Ok(()) => return,
                // The waiter has left; its guard must not give the resource back again.
                Err(mut guard) => match guard.resource.take() {
                    Some(left) => resource = left,
                    None => return,
                },
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState<R>> {
        // No code panics while it holds the lock, so the state is valid even if poisoned.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> QueueState<R> {
    /// Removes the next waiter in turn; its client and its name move to the end of their queues.
    fn pop(&mut self) -> Option<Waiter<R>> {
        let (address, mut names) = self.clients.shift_remove_index(0)?;
        let (name, mut waiters) = names.shift_remove_index(0)?;
        let waiter = waiters.pop_front()?;
        if !waiters.is_empty() {
            names.insert(name, waiters);
        }
        if !names.is_empty() {
            self.clients.insert(address, names);
        }
        self.waiting -= 1;
        Some(waiter)
    }

    /// Removes the waiter that a newcomer displaces, or returns `None` if the newcomer is refused.
    fn displace(&mut self, address: IpAddr, name: &Option<Name>) -> Option<Waiter<R>> {
        let waiting = |names: &ClientQueue<R>| names.values().map(VecDeque::len).sum::<usize>();
        let own = self.clients.get(&address);
        let own_waiting = own.map_or(0, waiting);
        let (client, names) = self.clients.iter().max_by_key(|(_, names)| waiting(names))?;
        let is_fuller = waiting(names) > own_waiting + 1;
        let (client, names) = if is_fuller { (*client, names) } else { (address, own?) };
        let (fullest, waiters) = names.iter().max_by_key(|(_, waiters)| waiters.len())?;
        let own_waiting = names.get(name).map_or(0, VecDeque::len);
        if !is_fuller && waiters.len() <= own_waiting + 1 {
            return None;
        }
        let fullest = fullest.clone();
        self.remove(client, &fullest, VecDeque::pop_back)
    }

    /// Removes the waiter that `take` takes from the waiters of a name.
    fn remove(
        &mut self,
        address: IpAddr,
        name: &Option<Name>,
        take: impl FnOnce(&mut VecDeque<Waiter<R>>) -> Option<Waiter<R>>,
    ) -> Option<Waiter<R>> {
        let names = self.clients.get_mut(&address)?;
        let waiters = names.get_mut(name)?;
        let waiter = take(waiters)?;
        if waiters.is_empty() {
            names.shift_remove(name);
        }
        if names.is_empty() {
            self.clients.shift_remove(&address);
        }
        self.waiting -= 1;
        Some(waiter)
    }
}

impl<R> Clone for FairQueue<R> {
    fn clone(&self) -> FairQueue<R> {
        FairQueue(self.0.clone())
    }
}

impl<R> BorrowGuard<R> {
    pub(crate) fn get(&mut self) -> Option<&mut R> {
        self.resource.as_mut()
    }
}

impl<R> Drop for BorrowGuard<R> {
    fn drop(&mut self) {
        if let Some(resource) = self.resource.take() {
            self.queue.give_back(resource);
        }
    }
}

impl<R> Drop for WaitGuard<'_, R> {
    fn drop(&mut self) {
        // A waiter that was served is no longer in the queue. This then removes another waiter of
        // the name that has left meanwhile, if there is one, before that waiter's own drop does.
        self.receiver.close();
        self.queue.state().remove(self.address, &self.name, |waiters| {
            waiters.remove(waiters.iter().position(Waiter::is_closed)?)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use futures_util::FutureExt;

    use super::*;

    type Waiting<'q> = Pin<Box<dyn Future<Output = Result<BorrowGuard<()>, QueueFull>> + 'q>>;

    const FLOOD: &str = "10.0.0.1";

    fn queue(waiting_max: usize) -> (FairQueue<()>, BorrowGuard<()>) {
        let queue = FairQueue::new(vec![()], waiting_max);
        let guard = queue.borrow(FLOOD.parse().unwrap(), None).now_or_never().unwrap().unwrap();
        (queue, guard)
    }

    #[track_caller]
    fn wait<'q>(queue: &'q FairQueue<()>, client: &str, name: &str) -> Waiting<'q> {
        let mut waiting = try_wait(queue, client, name);
        assert!(waiting.as_mut().now_or_never().is_none(), "{client} {name}");
        waiting
    }

    fn try_wait<'q>(queue: &'q FairQueue<()>, client: &str, name: &str) -> Waiting<'q> {
        let (client, name) = (client.parse().unwrap(), name.parse::<Name>().ok());
        Box::pin(async move { queue.borrow(client, name.as_ref()).await })
    }

    /// Returns the numbers of the waiters in the order in which they are served.
    fn served(guard: BorrowGuard<()>, mut waiting: Vec<Waiting<'_>>) -> Vec<usize> {
        let mut order = Vec::new();
        drop(guard);
        while order.len() < waiting.len() {
            let before = order.len();
            for (number, waiting) in waiting.iter_mut().enumerate() {
                if !order.contains(&number)
                    && let Some(Ok(guard)) = waiting.now_or_never()
                {
                    order.push(number);
                    drop(guard);
                }
            }
            assert!(order.len() > before, "{order:?}");
        }
        order
    }

    #[test]
    fn clients_take_turns_and_within_a_client_names_do() {
        let (queue, guard) = queue(100);
        let waiters = [
            (FLOOD, "a"),
            (FLOOD, "a"),
            (FLOOD, "a"),
            (FLOOD, "b"),
            ("10.0.0.2", "a"),
            ("10.0.0.2", ""),
        ];
        let waiting = waiters.map(|(client, name)| wait(&queue, client, name));
        assert_eq!(served(guard, waiting.into()), [0, 4, 3, 5, 1, 2]);
    }

    #[test]
    fn a_flood_displaces_only_itself() {
        let (queue, _lent) = queue(8);
        let mut flood: Vec<_> = (0..8).map(|_| wait(&queue, FLOOD, "a")).collect();
        assert!(try_wait(&queue, FLOOD, "a").now_or_never().unwrap().is_err());
        // Other names of the same client get places, until they have as many as the flood.
        let names = ["b", "c", "b"].map(|name| wait(&queue, FLOOD, name));
        for waiting in flood.drain(5..) {
            assert!(waiting.now_or_never().unwrap().is_err(), "the last are displaced");
        }
        // Other clients get places, too, whatever their names.
        let clients = ["1", "2", "3"].map(|host| wait(&queue, &format!("10.0.1.{host}"), "a"));
        for waiting in flood.drain(2..) {
            assert!(waiting.now_or_never().unwrap().is_err());
        }
        assert!(try_wait(&queue, FLOOD, "a").now_or_never().unwrap().is_err());
        assert!(try_wait(&queue, FLOOD, "b").now_or_never().unwrap().is_err());
        for mut waiting in flood.into_iter().chain(names).chain(clients) {
            assert!(waiting.as_mut().now_or_never().is_none(), "nobody else was displaced");
        }
    }

    #[test]
    fn equals_do_not_displace_each_other() {
        let (queue, _lent) = queue(3);
        let mut waiting = ["1", "2", "3"].map(|host| wait(&queue, &format!("10.0.1.{host}"), "a"));
        assert!(try_wait(&queue, "10.0.1.4", "a").now_or_never().unwrap().is_err());
        assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
    }

    #[test]
    fn a_leaving_waiter_frees_its_place_and_passes_the_resource_on() {
        let (queue, guard) = queue(2);
        let first = wait(&queue, FLOOD, "a");
        let second = wait(&queue, FLOOD, "a");
        drop(first);
        let third = wait(&queue, FLOOD, "b");
        drop(guard); // offered to the second waiter, which leaves without taking it
        drop(second);
        let guard = third.now_or_never().unwrap().unwrap();
        drop(guard);
        let state = queue.state();
        assert_eq!((state.idle.len(), state.waiting, state.clients.len()), (1, 0, 0));
    }
}
