//! Frames of WebSockets (RFC 6455), as the client needs them: it reads whole messages in place from a buffer, and
//! writes short ones. A mask of zeros is a valid mask, and leaves the bytes as they are.

use std::io;

const HEAD_BYTES_MAX: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frame<'a> {
    Text(&'a [u8]),
    Ping(&'a [u8]),
    Pong,
    Close,
}

/// Takes a frame off the front; returns `None` if it is not complete.
pub(super) fn next<'a>(rest: &mut &'a [u8]) -> io::Result<Option<Frame<'a>>> {
    let bytes = *rest;
    let [first, second, ..] = *bytes else { return Ok(None) };
    let long = match second {
        ..126 => 0,
        126 => 2,
        127 => HEAD_BYTES_MAX - 2,
        _ => return Err(io::Error::other("the server masks its frames")),
    };
    let Some(extended) = bytes.get(2..2 + long) else { return Ok(None) };
    let length = match long {
        0 => usize::from(second),
        _ => extended.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)),
    };
    let start = 2 + long;
    let Some(payload) = bytes.get(start..start.saturating_add(length)) else { return Ok(None) };
    *rest = &bytes[start + length..];
    // The highest bit marks the last frame of a message.
    Ok(Some(match first {
        0x81 => Frame::Text(payload),
        0x89 => Frame::Ping(payload),
        0x8A => Frame::Pong,
        0x88 => Frame::Close,
        _ => return Err(io::Error::other(format!("a frame begins with {first:#x}"))),
    }))
}

pub(super) fn write_text(target: &mut Vec<u8>, text: &str) {
    write(target, 0x81, text.as_bytes());
}

pub(super) fn write_pong(target: &mut Vec<u8>, payload: &[u8]) {
    write(target, 0x8A, payload);
}

fn write(target: &mut Vec<u8>, first: u8, payload: &[u8]) {
    const MASKED: u8 = 0x80;
    target.push(first);
    match payload.len() {
        length @ ..126 => target.push(MASKED | length as u8),
        length => {
            target.push(MASKED | 126);
            // No message of the client is longer.
            target.extend_from_slice(&(length as u16).to_be_bytes());
        }
    }
    target.extend_from_slice(&[0; 4]);
    target.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_when_its_last_byte_is_there() {
        for length in [0, 1, 125, 126, 300, 70_000] {
            let payload = vec![b'a'; length];
            let mut bytes = vec![0x81];
            match length {
                ..126 => bytes.push(length as u8),
                126..65_536 => {
                    bytes.push(126);
                    bytes.extend((length as u16).to_be_bytes());
                }
                _ => {
                    bytes.push(127);
                    bytes.extend((length as u64).to_be_bytes());
                }
            }
            bytes.extend(&payload);
            for cut in [0, 1, 2, bytes.len() - 1] {
                let mut part = &bytes[..cut.min(bytes.len() - 1)];
                assert!(matches!(next(&mut part), Ok(None)), "{length}: {cut}");
            }
            bytes.extend(b"\x8a\0");
            let mut rest = &bytes[..];
            assert_eq!(next(&mut rest).expect("it is valid"), Some(Frame::Text(&payload)));
            assert_eq!(next(&mut rest).expect("it is valid"), Some(Frame::Pong));
            assert_eq!(next(&mut rest).expect("it is valid"), None);
        }
    }

    #[test]
    fn parts_of_messages_and_masked_frames_are_refused() {
        for bytes in [&b"\x01\x00"[..], b"\x80\x00", b"\x81\x80\0\0\0\0"] {
            assert!(next(&mut &*bytes).is_err(), "{bytes:?}");
        }
    }
}
