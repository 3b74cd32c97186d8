//! The links of one process: which it has, and which it is just giving up.
//!
//! Linking and unlinking are signals, so two processes may ask for opposite things at once. What
//! each side does is here, apart from how signals travel; both sides come to agree, whatever
//! crosses on the way, because signals between two processes keep their order and because an
//! unlink stays open until the other side has acknowledged it:
//!
//! | state | own `link` | own `unlink` | peer's link | peer's unlink | acknowledged | peer exits |
//! |---|---|---|---|---|---|---|
//! | none | Linked, tell | – | Linked | acknowledge | – | no effect |
//! | Linked | – | Unlinking, tell | – | none, acknowledge | – | none, **takes effect** |
//! | Unlinking n | Linked, tell | – | – (it will be undone) | acknowledge | none, if it is n | none, no effect |
//!
//! After `unlink` returns, no exit of the peer takes effect any more: OTP's promise.

use crate::signal::small_map::SmallMap;
use std::hash::Hash;

/// See the file's head. `K` names a peer.
#[derive(Debug)]
pub(crate) struct Links<K> {
    peers: SmallMap<K, Tie>,
    unlinks: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tie {
    Linked,
    /// The number of the unlink that is not acknowledged yet.
    Unlinking(u32),
}

impl<K> Default for Links<K> {
    fn default() -> Self {
        Links { peers: SmallMap::default(), unlinks: 0 }
    }
}

impl<K: Copy + Eq + Hash> Links<K> {
    /// This process links; true if the peer must be told.
    pub(crate) fn link(&mut self, peer: K) -> bool {
        self.peers.insert(peer, Tie::Linked) != Some(Tie::Linked)
    }

    /// This process unlinks; with what number the peer must be told, if it must.
    pub(crate) fn unlink(&mut self, peer: K) -> Option<u32> {
        if self.peers.get(&peer) != Some(&Tie::Linked) {
            return None;
        }
        self.unlinks = self.unlinks.wrapping_add(1);
        self.peers.insert(peer, Tie::Unlinking(self.unlinks));
        Some(self.unlinks)
    }

    /// The peer has linked.
    pub(crate) fn on_link(&mut self, peer: K) {
        if self.peers.get(&peer).is_none() {
            self.peers.insert(peer, Tie::Linked);
        }
    }

    /// The peer has unlinked; it is to be told so.
    pub(crate) fn on_unlink(&mut self, peer: K) {
        if self.peers.get(&peer) == Some(&Tie::Linked) {
            self.peers.remove(&peer);
        }
    }

    /// The peer knows of an unlink.
    pub(crate) fn on_acknowledge(&mut self, peer: K, number: u32) {
        if self.peers.get(&peer) == Some(&Tie::Unlinking(number)) {
            self.peers.remove(&peer);
        }
    }

    /// The peer has exited; true if that concerns this process.
    pub(crate) fn on_exit(&mut self, peer: K) -> bool {
        self.peers.remove(&peer) == Some(Tie::Linked)
    }

    /// Has [`pop`](Self::pop) begin with the oldest link.
    pub(crate) fn reverse(&mut self) {
        self.peers.reverse();
    }

    /// Takes some peer out, to be told of this process's own exit.
    pub(crate) fn pop(&mut self) -> Option<K> {
        loop {
            match self.peers.pop()? {
                (peer, Tie::Linked) => return Some(peer),
                // It has been told, or will be, that there is no link.
                (_, Tie::Unlinking(_)) => {}
            }
        }
    }

    /// What they take besides themselves.
    pub(crate) fn bytes(&self) -> usize {
        self.peers.bytes()
    }

    /// Who is linked.
    pub(crate) fn iter(&self) -> impl Iterator<Item = K> {
        self.peers.iter().filter(|(_, tie)| **tie == Tie::Linked).map(|(peer, _)| *peer)
    }
}

#[cfg(all(test, not(throng_loom)))]
mod tests {
    //! Every interleaving of what two processes may do, followed by brute force.
    use super::*;
    use std::collections::VecDeque;

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Step {
        Link,
        Unlink,
        Exit,
    }

    #[derive(Clone, Debug)]
    enum Signal {
        Link,
        Unlink(u32),
        Acknowledge(u32),
        Exit,
    }

    /// One side: its links to the other, which is called 0, and what is on the way to it.
    #[derive(Default)]
    struct Side {
        links: Links<u8>,
        inbox: VecDeque<Signal>,
        exited: bool,
        /// The other's exit took effect here.
        felt: bool,
    }

    impl Clone for Side {
        fn clone(&self) -> Side {
            let mut links = Links { peers: SmallMap::default(), unlinks: self.links.unlinks };
            for (&peer, &tie) in self.links.peers.iter() {
                links.peers.insert(peer, tie);
            }
            Side { links, inbox: self.inbox.clone(), ..*self }
        }
    }

    fn send(from: usize, sides: &mut [Side; 2], signal: Signal) {
        if !sides[1 - from].exited {
            sides[1 - from].inbox.push_back(signal);
        } else if matches!(signal, Signal::Link) {
            // To a process that is gone: no such process.
            sides[from].inbox.push_back(Signal::Exit);
        }
    }

    fn act(who: usize, step: Step, sides: &mut [Side; 2]) {
        match step {
            Step::Link => {
                if sides[who].links.link(0) {
                    send(who, sides, Signal::Link);
                }
            }
            Step::Unlink => {
                if let Some(number) = sides[who].links.unlink(0) {
                    send(who, sides, Signal::Unlink(number));
                }
                assert!(sides[who].links.iter().next().is_none(), "unlinked is unlinked");
            }
            Step::Exit => {
                sides[who].exited = true;
                // What is in its mailbox is refused.
                for signal in std::mem::take(&mut sides[who].inbox) {
                    if matches!(signal, Signal::Link) && !sides[1 - who].exited {
                        sides[1 - who].inbox.push_back(Signal::Exit);
                    }
                }
                while sides[who].links.pop().is_some() {
                    send(who, sides, Signal::Exit);
                }
            }
        }
    }

    fn receive(who: usize, sides: &mut [Side; 2]) {
        let Some(signal) = sides[who].inbox.pop_front() else { return };
        match signal {
            Signal::Link => sides[who].links.on_link(0),
            Signal::Unlink(number) => {
                sides[who].links.on_unlink(0);
                send(who, sides, Signal::Acknowledge(number));
            }
            Signal::Acknowledge(number) => sides[who].links.on_acknowledge(0, number),
            Signal::Exit => sides[who].felt |= sides[who].links.on_exit(0),
        }
    }

    /// Follows every order in which the scripts' steps and the deliveries may happen.
    fn explore(sides: &[Side; 2], scripts: [&[Step]; 2], ends: &mut u32) {
        let mut moved = false;
        for who in 0..2 {
            if sides[who].exited {
                continue;
            }
            if let [step, rest @ ..] = scripts[who] {
                moved = true;
                let mut next = sides.clone();
                act(who, *step, &mut next);
                let mut left = scripts;
                left[who] = rest;
                explore(&next, left, ends);
            }
            if !sides[who].inbox.is_empty() {
                moved = true;
                let mut next = sides.clone();
                receive(who, &mut next);
                explore(&next, scripts, ends);
            }
        }
        if !moved {
            *ends += 1;
            let linked = [0, 1].map(|side: usize| sides[side].links.peers.len() > 0);
            match [sides[0].exited, sides[1].exited] {
                [false, false] => assert_eq!(linked[0], linked[1], "both sides agree"),
                [true, false] => assert!(!linked[1], "nobody is linked to the dead"),
                [false, true] => assert!(!linked[0], "nobody is linked to the dead"),
                [true, true] => {}
            }
            for who in 0..2 {
                // Whose last word was to link, and whose peer exited without unlinking, feels it.
                if sides[1 - who].exited && !sides[who].exited && scripts[who].is_empty() {
                    assert!(sides[who].links.peers.len() == 0);
                }
            }
        }
    }

    #[test]
    fn both_sides_agree_whatever_crosses() {
        use Step::{Exit, Link, Unlink};
        let scripts: [&[Step]; 8] = [
            &[],
            &[Link],
            &[Link, Unlink],
            &[Link, Unlink, Link],
            &[Unlink, Link],
            &[Link, Exit],
            &[Exit],
            &[Link, Unlink, Link, Exit],
        ];
        let mut ends = 0;
        for first in scripts {
            for second in scripts {
                explore(&Default::default(), [first, second], &mut ends);
                // And from an established link.
                let mut linked: [Side; 2] = Default::default();
                act(0, Link, &mut linked);
                receive(1, &mut linked);
                explore(&linked, [first, second], &mut ends);
            }
        }
        assert!(ends > 1000, "only {ends} ends were reached");
    }

    #[test]
    fn an_exit_is_felt_by_who_is_linked_and_not_after_unlink() {
        let mut sides: [Side; 2] = Default::default();
        act(0, Step::Link, &mut sides);
        receive(1, &mut sides);
        act(1, Step::Exit, &mut sides);
        let mut unlinked = sides.clone();
        receive(0, &mut sides);
        assert!(sides[0].felt);
        // The exit is on its way already, but the unlink returns first.
        act(0, Step::Unlink, &mut unlinked);
        receive(0, &mut unlinked);
        assert!(!unlinked[0].felt);
    }
}
