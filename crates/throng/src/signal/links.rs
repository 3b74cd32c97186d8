//! The links of a process: the links it has, and the links it is just giving up.
//!
//! Linking and unlinking are signals, so two processes may ask for opposite things at once. This
//! file has the rules for each side, without the transport of signals. Both sides come to agree,
//! whatever crosses on the way, because signals between two processes keep their order and because
//! an unlink stays open until the other side has acknowledged it:
//!
//! | state | own `link` | own `unlink` | peer's link | peer's unlink | acknowledged | peer exits |
//! |---|---|---|---|---|---|---|
//! | none | Linked, send | – | Linked | acknowledge | – | no effect |
//! | Linked | – | Unlinking, send | – | none, acknowledge | – | none, **takes effect** |
//! | Unlinking n | Linked, send | – | – (it will be undone) | acknowledge | none, if it is n | none, no effect |
//!
//! After `unlink` returns, no exit of the peer takes effect any more, as OTP promises.

use crate::signal::small_map::SmallMap;
use std::hash::Hash;

/// The links of a process; `K` identifies a peer. See the file's head.
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
    /// Links this process to a peer; true if the link signal must be sent.
    pub(crate) fn link(&mut self, peer: K) -> bool {
        self.peers.insert(peer, Tie::Linked) != Some(Tie::Linked)
    }

    /// Unlinks this process from a peer; returns the number of the unlink signal to send, if any.
    pub(crate) fn unlink(&mut self, peer: K) -> Option<u32> {
        if self.peers.get(&peer) != Some(&Tie::Linked) {
            return None;
        }
        self.unlinks = self.unlinks.wrapping_add(1);
        self.peers.insert(peer, Tie::Unlinking(self.unlinks));
        Some(self.unlinks)
    }

    /// Acts on the peer's link.
    pub(crate) fn on_link(&mut self, peer: K) {
        if self.peers.get(&peer).is_none() {
            self.peers.insert(peer, Tie::Linked);
        }
    }

    /// Acts on the peer's unlink, which the caller acknowledges.
    pub(crate) fn on_unlink(&mut self, peer: K) {
        if self.peers.get(&peer) == Some(&Tie::Linked) {
            self.peers.remove(&peer);
        }
    }

    /// Acts on the peer's acknowledgement of an unlink.
    pub(crate) fn on_acknowledge(&mut self, peer: K, number: u32) {
        if self.peers.get(&peer) == Some(&Tie::Unlinking(number)) {
            self.peers.remove(&peer);
        }
    }

    /// Acts on the peer's exit; true if it takes effect on this process.
    pub(crate) fn on_exit(&mut self, peer: K) -> bool {
        self.peers.remove(&peer) == Some(Tie::Linked)
    }

    /// Reverses the order, so that [`pop`](Self::pop) begins with the oldest link.
    pub(crate) fn reverse(&mut self) {
        self.peers.reverse();
    }

    /// Takes a peer out, to be notified of this process's own exit.
    pub(crate) fn pop(&mut self) -> Option<K> {
        loop {
            match self.peers.pop()? {
                (peer, Tie::Linked) => return Some(peer),
                // The peer has received the unlink, or will receive it.
                (_, Tie::Unlinking(_)) => {}
            }
        }
    }

    /// Bytes of the links that are not stored in this value itself.
    pub(crate) fn bytes(&self) -> usize {
        self.peers.bytes()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = K> {
        self.peers.iter().filter(|(_, tie)| **tie == Tie::Linked).map(|(peer, _)| *peer)
    }
}

#[cfg(all(test, not(throng_loom)))]
mod tests {
    //! Every interleaving of the steps of two processes, explored by brute force.
    use super::*;
    use std::collections::{HashSet, VecDeque};

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

    /// A side: its links to the other side, which is called 0, and the signals under way to it.
    #[derive(Debug, Default)]
    struct Side {
        links: Links<u8>,
        inbox: VecDeque<Signal>,
        exited: bool,
        /// Whether the other side's exit took effect here.
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
            // The peer has exited, so the sender gets an exit signal: no such process.
            sides[from].inbox.push_back(Signal::Exit);
        }
    }

    fn act(side: usize, step: Step, sides: &mut [Side; 2]) {
        match step {
            Step::Link => {
                if sides[side].links.link(0) {
                    send(side, sides, Signal::Link);
                }
            }
            Step::Unlink => {
                if let Some(number) = sides[side].links.unlink(0) {
                    send(side, sides, Signal::Unlink(number));
                }
                assert!(sides[side].links.iter().next().is_none(), "a link is left after unlink");
            }
            Step::Exit => {
                sides[side].exited = true;
                // The signals left in its mailbox are refused.
                for signal in std::mem::take(&mut sides[side].inbox) {
                    if matches!(signal, Signal::Link) && !sides[1 - side].exited {
                        sides[1 - side].inbox.push_back(Signal::Exit);
                    }
                }
                while sides[side].links.pop().is_some() {
                    send(side, sides, Signal::Exit);
                }
            }
        }
    }

    fn receive(side: usize, sides: &mut [Side; 2]) {
        let Some(signal) = sides[side].inbox.pop_front() else { return };
        match signal {
            Signal::Link => sides[side].links.on_link(0),
            Signal::Unlink(number) => {
                sides[side].links.on_unlink(0);
                send(side, sides, Signal::Acknowledge(number));
            }
            Signal::Acknowledge(number) => sides[side].links.on_acknowledge(0, number),
            Signal::Exit => sides[side].felt |= sides[side].links.on_exit(0),
        }
    }

    /// Follows every order in which the scripts' steps and the deliveries may happen, each state once.
    fn explore(sides: &[Side; 2], scripts: [&[Step]; 2], seen: &mut HashSet<String>) {
        if !seen.insert(format!("{sides:?} {scripts:?}")) {
            return;
        }
        let mut moved = false;
        for side in 0..2 {
            if sides[side].exited {
                continue;
            }
            if let [step, rest @ ..] = scripts[side] {
                moved = true;
                let mut next = sides.clone();
                act(side, *step, &mut next);
                let mut left = scripts;
                left[side] = rest;
                explore(&next, left, seen);
            }
            if !sides[side].inbox.is_empty() {
                moved = true;
                let mut next = sides.clone();
                receive(side, &mut next);
                explore(&next, scripts, seen);
            }
        }
        if !moved {
            let linked = [0, 1].map(|side: usize| sides[side].links.peers.len() > 0);
            match [sides[0].exited, sides[1].exited] {
                [false, false] => assert_eq!(linked[0], linked[1], "both sides agree"),
                [true, false] => assert!(!linked[1], "a link to a dead process is left"),
                [false, true] => assert!(!linked[0], "a link to a dead process is left"),
                [true, true] => {}
            }
            for side in 0..2 {
                // A live side keeps nothing of a peer that exited, not even an open unlink.
                if sides[1 - side].exited && !sides[side].exited && scripts[side].is_empty() {
                    assert!(sides[side].links.peers.len() == 0);
                }
            }
        }
    }

    #[test]
    fn both_sides_agree_whatever_crosses() {
        use Step::{Exit, Link, Unlink};
        let scripts: [&[Step]; 10] = [
            &[],
            &[Link],
            &[Link, Unlink],
            &[Link, Unlink, Link],
            &[Link, Unlink, Link, Unlink],
            &[Link, Unlink, Link, Unlink, Link],
            &[Unlink, Link],
            &[Link, Exit],
            &[Exit],
            &[Link, Unlink, Link, Exit],
        ];
        let mut seen = HashSet::new();
        for first in scripts {
            for second in scripts {
                explore(&Default::default(), [first, second], &mut seen);
                // The same from an established link.
                let mut linked: [Side; 2] = Default::default();
                act(0, Link, &mut linked);
                receive(1, &mut linked);
                explore(&linked, [first, second], &mut seen);
            }
        }
        assert!(seen.len() > 1000, "only {} states were reached", seen.len());
    }

    #[test]
    fn an_exit_takes_effect_on_a_linked_peer_and_not_after_unlink() {
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
