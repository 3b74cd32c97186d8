//! [`Tail`]: the rule by which every reader of a log decides alike which records count.
//!
//! ```text
//! log   │ EPOCH 1, A │ 1 A │ 2 A │ EPOCH 2, B │ 3 A │ 1 B … │ EPOCH 1, C │
//!         counts      counts        counts      noise counts   noise
//! ```
//!
//! An `EPOCH` counts if its epoch is above the current one, whatever else it says; its author becomes the owner. Any
//! other record counts if it has the current epoch and owner, the next number, and the chain of all records before
//! it that count. Everything else is *noise*: all readers pass over it.
//!
//! 1. The answer depends on the bytes of the log from its begin on, and on nothing else: no clock, no setting, no
//!    answer of the engine. So readers of the same bytes are in the same state, whenever they read them.
//! 2. A record counts once at most, and in one place of one log only.
//! 3. After a `HANDOFF` nothing counts until the next `EPOCH`.

use throng_store::Stamp;

use crate::guard::{Guard, holds};
use crate::record::{Chain, Incarnation, Record, RecordKind};
use crate::replica::Position;

/// State of a reader of a log after the records that it has read; see the file's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The current epoch; 0 before the first.
    pub epoch: u64,
    /// Author of the newest epoch that counts; `None` before the first, and after a handoff.
    pub owner: Option<Incarnation>,
    /// Number of records that count.
    pub number: u64,
    /// Hash of the records that count.
    pub chain: Chain,
}

/// Answer to whether a record counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'b> {
    /// The record is a part of the shard's history.
    Counts(Record<'b>),
    /// The record is not, for this reason.
    Noise(Noise),
    /// The record needs a reader of this level: an older program must not read on.
    Beyond(u32),
}

/// Reason for which a record does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// The bytes are no record.
    Malformed,
    /// The record has an earlier epoch than the current one, or claims one that is not later.
    Deposed,
    /// The record has the current epoch, and another author than its owner.
    Foreign,
    /// The record has the epoch of an owner whose `EPOCH` is not here.
    Unclaimed,
    /// The owner's record does not follow the owner's last one.
    Misplaced,
}

impl Tail {
    /// Returns the state at a position of the log as bytes, which a store keeps beside the changes up to there.
    pub fn to_stamp(&self, at: Position) -> Stamp {
        let mut bytes = [0; Stamp::BYTES];
        bytes[..8].copy_from_slice(&at.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.chain.0.to_le_bytes());
        if let Some(owner) = self.owner {
            bytes[40..56].copy_from_slice(&owner.0.to_le_bytes());
            bytes[56] = 1;
        }
        Stamp(bytes)
    }

    /// Returns the position and the state of bytes that [`to_stamp`](Tail::to_stamp) has made.
    pub fn from_stamp(Stamp(bytes): &Stamp) -> (Position, Tail) {
        let number =
            |from: usize| bytes[from..].first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
        let long = |from: usize| bytes[from..].first_chunk().map_or(0, |n| u128::from_le_bytes(*n));
        let owner = (bytes[56] == 1).then(|| Incarnation(long(40)));
        let (epoch, number_of_record, chain) = (number(8), number(16), Chain(long(24)));
        (Position(number(0)), Tail { epoch, owner, number: number_of_record, chain })
    }

    /// Decides whether the next record of the log counts for a reader of some level, and moves past it if so.
    pub fn read<'b>(&mut self, level: u32, bytes: &'b [u8]) -> Verdict<'b> {
        let Some(record) = Record::decode(bytes) else { return Verdict::Noise(Noise::Malformed) };
        let header = &record.header;
        if let Err(noise) = self.admit(&record) {
            return Verdict::Noise(noise);
        }
        if header.level > level {
            return Verdict::Beyond(header.level);
        }
        self.number += 1;
        self.chain = self.chain.after(bytes);
        match header.kind {
            RecordKind::Epoch => (self.epoch, self.owner) = (header.epoch, Some(header.owner)),
            RecordKind::Handoff => self.owner = None,
            _ => {}
        }
        Verdict::Counts(record)
    }

    fn admit(&self, record: &Record<'_>) -> Result<(), Noise> {
        let header = &record.header;
        if header.kind == RecordKind::Epoch {
            return if header.epoch > self.epoch { Ok(()) } else { Err(Noise::Deposed) };
        }
        if header.epoch != self.epoch {
            let is_earlier = header.epoch < self.epoch;
            return Err(if is_earlier { Noise::Deposed } else { Noise::Unclaimed });
        }
        if self.owner != Some(header.owner) {
            return Err(Noise::Foreign);
        }
        let follows = header.number == self.number + 1 && header.chain == self.chain;
        if follows || !holds(Guard::RecordFollows) { Ok(()) } else { Err(Noise::Misplaced) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::fuzzing::{self, LEVEL};
    use crate::record::Header;

    proptest! {
        #[test]
        fn readers_of_any_log_agree_by_the_definition(bytes in vec(any::<u8>(), 0..200)) {
            fuzzing::tails(&bytes);
        }

        #[test]
        fn any_bytes_have_a_verdict(bytes in vec(any::<u8>(), 0..200)) {
            let mut tail = Tail::default();
            prop_assert_eq!(tail.read(LEVEL, &bytes), Verdict::Noise(Noise::Malformed));
            prop_assert_eq!(tail, Tail::default());
        }
    }

    #[test]
    fn logs_of_the_properties_have_records_that_count_and_all_noise() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut seen, mut counted, mut beyond) = (Vec::new(), 0, 0);
        for _ in 0..300 {
            let bytes: Vec<u8> = (0..180).map(|_| random.u8(..)).collect();
            let mut tail = Tail::default();
            for record in fuzzing::log(&bytes) {
                match tail.read(LEVEL, &record) {
                    Verdict::Counts(_) => counted += 1,
                    Verdict::Beyond(_) => beyond += 1,
                    Verdict::Noise(noise) if !seen.contains(&noise) => seen.push(noise),
                    Verdict::Noise(_) => {}
                }
            }
        }
        assert!(counted > 3_000 && beyond > 10, "{counted}, {beyond}");
        // An owner's record without its epoch before it needs a log that was cut at its begin.
        assert_eq!(seen.len(), 4, "{seen:?}");
    }

    #[test]
    fn a_state_comes_back_from_its_stamp() {
        let chain = Chain(u128::MAX - 7);
        for owner in [None, Some(Incarnation(0)), Some(Incarnation(u128::MAX - 1))] {
            let tail = Tail { epoch: 5, owner, number: u64::MAX - 3, chain };
            assert_eq!(Tail::from_stamp(&tail.to_stamp(Position(9))), (Position(9), tail));
        }
        assert_eq!(Tail::from_stamp(&Stamp::START), (Position(0), Tail::default()));
        assert_eq!(Tail::default().to_stamp(Position(0)), Stamp::START);
    }

    #[test]
    fn a_record_without_its_epoch_is_noise() {
        let owner = Incarnation(1);
        let header = Header {
            kind: RecordKind::Changes,
            level: 0,
            epoch: 1,
            number: 1,
            chain: Chain::default(),
            owner,
            first: 1,
            count: 1,
            time: 0,
        };
        let verdict = Verdict::Noise(Noise::Unclaimed);
        assert_eq!(Tail::default().read(LEVEL, &header.encode([])), verdict);
    }
}
