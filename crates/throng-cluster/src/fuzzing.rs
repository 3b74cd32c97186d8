//! Body of the fuzz target of this crate, and of property tests: it takes any bytes, and panics if a property does not
//! hold.

use bytes::Bytes;

use crate::record::{Chain, Header, Incarnation, Record, RecordKind};
use crate::tail::{Tail, Verdict};

/// Level of the readers.
pub(crate) const LEVEL: u32 = 3;

/// Reads a log made of the bytes: by the rule and by its definition, and from any record on.
///
/// # Panics
///
/// If two readers differ.
pub fn tails(data: &[u8]) {
    let log = log(data);
    let expected = model(&log);
    let begins = (0..=log.len()).step_by(1 + log.len() / 8);
    let mut readers: Vec<(usize, Option<Tail>)> = begins.map(|begin| (begin, None)).collect();
    let mut tail = Tail::default();
    for (index, record) in log.iter().enumerate() {
        for (begin, reader) in &mut readers {
            if *begin == index {
                *reader = Some(tail);
            }
        }
        let counts = matches!(tail.read(LEVEL, record), Verdict::Counts(_));
        assert_eq!(counts, expected[index], "record {index} of {log:?}");
        for (begin, reader) in &mut readers {
            if let Some(reader) = reader {
                reader.read(LEVEL, record);
                assert_eq!(*reader, tail, "the reader from {begin} on differs at {index}");
            }
        }
    }
}

/// Which records of a log count, by the definition: each is judged by all before it that count.
fn model(log: &[Bytes]) -> Vec<bool> {
    let mut counted: Vec<&[u8]> = Vec::new();
    let mut verdicts = Vec::new();
    for bytes in log {
        let before = || counted.iter().filter_map(|bytes| Record::decode(bytes));
        let epochs = before().filter(|record| record.header.kind == RecordKind::Epoch);
        let newest = epochs.max_by_key(|record| record.header.epoch).map(|record| record.header);
        let is_over =
            before().next_back().is_some_and(|last| last.header.kind == RecordKind::Handoff);
        let chain = counted.iter().fold(Chain::default(), |chain, bytes| {
            let hash = blake3::hash(&[&chain.0.to_le_bytes(), *bytes].concat());
            Chain(u128::from_le_bytes(hash.as_bytes()[..16].try_into().expect("16 bytes")))
        });
        let counts = Record::decode(bytes).is_some_and(|Record { header, .. }| match newest {
            _ if header.level > LEVEL => false,
            _ if header.kind == RecordKind::Epoch => {
                header.epoch > newest.map_or(0, |newest| newest.epoch)
            }
            Some(newest) => {
                !is_over
                    && (header.epoch, header.owner) == (newest.epoch, newest.owner)
                    && header.number == counted.len() as u64 + 1
                    && header.chain == chain
            }
            None => false,
        });
        verdicts.push(counts);
        if counts {
            counted.push(bytes);
        }
    }
    verdicts
}

/// Makes a log out of any bytes, three for each entry: records that follow those before, or a reader's state of long ago, and
/// copies, damaged or not.
pub(crate) fn log(data: &[u8]) -> Vec<Bytes> {
    let (mut log, mut tails): (Vec<Bytes>, _) = (Vec::new(), vec![Tail::default()]);
    for [choice, from, other] in data.as_chunks().0 {
        // The present state twice as often as all earlier ones.
        let at = tails.len() - 1;
        let tail = tails[if from % 3 == 0 { usize::from(*from) % tails.len() } else { at }];
        let author = Incarnation(u128::from(other % 3));
        let mut header = Header {
            kind: RecordKind::Changes,
            level: if *other == 255 { LEVEL + 1 } else { LEVEL },
            epoch: tail.epoch,
            number: tail.number + 1,
            chain: tail.chain,
            owner: tail.owner.unwrap_or(author),
            first: 0,
            count: 0,
            time: u64::from(*other),
        };
        let copied = |log: &[Bytes]| match log {
            [] => Bytes::new(),
            log => log[usize::from(*other) % log.len()].clone(),
        };
        let record = match choice % 12 {
            0..=4 => header.encode([other.to_le_bytes().as_slice()]),
            5 | 6 => {
                header.kind = RecordKind::Epoch;
                (header.owner, header.epoch) = (author, header.epoch + u64::from(other % 4));
                header.encode([])
            }
            7 => {
                header.kind = RecordKind::Handoff;
                header.encode([])
            }
            8 => {
                header.owner = author;
                header.encode([])
            }
            9 => copied(&log),
            10 => copied(&log).slice(..copied(&log).len() * usize::from(*from) / 256),
            _ => {
                let mut bytes = copied(&log).to_vec();
                let length = bytes.len().max(1);
                bytes
                    .iter_mut()
                    .skip(usize::from(*from) % length)
                    .take(1)
                    .for_each(|byte| *byte ^= 4);
                bytes.into()
            }
        };
        let mut tail = tails[at];
        tail.read(LEVEL, &record);
        tails.push(tail);
        log.push(record);
    }
    log
}
