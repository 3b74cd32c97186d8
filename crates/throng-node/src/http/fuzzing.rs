//! Bodies of the fuzz targets of this crate: each takes any bytes and panics if a property does not hold.
//!
//! | function | bytes | property |
//! |---|---|---|
//! | [`heads`] | a stream of requests | hyper gets the same requests however the stream is cut, and bytes that are delivered are never rejected later |
//! | [`frames`] | a stream of a client's frames | the messages are the same however the stream is cut, and within the limits |
//! | [`forwarded`] | the headers in which proxies name their clients | no bytes of a client make it another client |
//! | [`sealed`] | a text, or a cursor and its listing | only the signer's own text opens, for its own listing |
//!
//! The first bytes of an input choose the cuts, so that a fuzzer can change them without changing the stream.

use std::net::IpAddr;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};

use crate::http::head::{Delivery, HeadRefusal, Requests};
use crate::http::socket::{ClientMessage, MessageReader, SocketLimits, Violation};
use crate::http::{Cursor, ForwardedHeader, Network, Signer, TrustedProxies};

/// Sizes of the pieces of a stream, repeated for ever.
struct Cuts<'d> {
    sizes: &'d [u8],
    next: usize,
}

impl<'d> Cuts<'d> {
    /// Takes the sizes from the front of an input.
    fn take(data: &mut &'d [u8]) -> Cuts<'d> {
        let (sizes, rest) = data.split_at(data.len().min(4));
        *data = rest;
        Cuts { sizes, next: 0 }
    }

    /// Returns the next size, which is at least 1.
    fn size(&mut self) -> usize {
        let size = self.sizes.get(self.next % self.sizes.len().max(1)).copied().unwrap_or(0);
        self.next += 1;
        usize::from(size).max(1)
    }
}

/// Limit of a head, small enough that inputs reach it.
const HEAD_BYTES_MAX: usize = 512;

/// Reads a stream of requests in pieces and as a whole, and compares the outcomes.
///
/// # Panics
/// If the outcomes differ, or if delivered bytes are rejected when they are read again.
pub fn heads(data: &[u8]) {
    let mut stream = data;
    let mut cuts = Cuts::take(&mut stream);
    let (whole, end) = delivered(stream, || usize::MAX);
    let (pieces, end_of_pieces) = delivered(stream, || cuts.size());
    assert_eq!(end, end_of_pieces, "the end of the requests depends on the cuts");
    // The bytes of a body before its break may or may not have been delivered.
    let is_same = whole == pieces || end.0 == Delivery::Broken && pieces.starts_with(&whole);
    assert!(is_same, "the bytes for hyper depend on the cuts");
    assert!(whole.len() <= stream.len(), "hyper got bytes that nobody sent");
    let (again, end) = delivered(&whole, || usize::MAX);
    assert_eq!((again.len(), end.1), (whole.len(), None), "delivered bytes are rejected");
}

/// Returns the bytes that hyper gets of a stream, and why it gets no more: the last delivery, and the reason for
/// rejecting a head.
fn delivered(
    stream: &[u8],
    mut size: impl FnMut() -> usize,
) -> (Vec<u8>, (Delivery, Option<HeadRefusal>)) {
    let mut requests = Requests::new(HEAD_BYTES_MAX);
    let mut bytes = Vec::new();
    let mut rest = stream;
    loop {
        match requests.deliver(size(), |piece| bytes.extend_from_slice(piece)) {
            Delivery::Bytes(count) => assert!(count > 0, "a delivery of nothing"),
            Delivery::NeedsInput if !rest.is_empty() => {
                let (piece, after) = rest.split_at(size().min(rest.len()));
                requests.feed(piece);
                rest = after;
            }
            end => {
                let refusal = requests.refusal();
                assert_eq!(end == Delivery::Refused, refusal.is_some());
                return (bytes, (end, refusal));
            }
        }
    }
}

/// Reads a stream of frames in pieces and as a whole, and compares the messages.
///
/// # Panics
/// If the messages differ or exceed a limit.
pub fn frames(data: &[u8]) {
    let mut stream = data;
    let mut cuts = Cuts::take(&mut stream);
    let limits =
        SocketLimits { frame_bytes_max: 200, message_bytes_max: 300, ..SocketLimits::default() };
    let (whole, violation) = messages(stream, || usize::MAX, &limits);
    let in_pieces = messages(stream, || cuts.size(), &limits);
    assert_eq!((&whole, violation), (&in_pieces.0, in_pieces.1), "messages depend on the cuts");
    let bytes_max = |message: &ClientMessage| match message {
        ClientMessage::Text(text) => text.len() <= limits.message_bytes_max,
        ClientMessage::Ping(payload) => payload.len() <= 125,
        ClientMessage::Close(code, reason) => {
            reason.len() <= 123 && code.is_none_or(|code| code >= 1000)
        }
        ClientMessage::Pong => true,
    };
    assert!(whole.iter().all(bytes_max), "a message is too large: {whole:?}");
}

/// Returns the messages of a stream, and the violation that ends it.
fn messages(
    stream: &[u8],
    mut size: impl FnMut() -> usize,
    limits: &SocketLimits,
) -> (Vec<ClientMessage>, Option<Violation>) {
    let mut reader = MessageReader::new();
    let mut messages = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let (mut piece, after) = rest.split_at(size().min(rest.len()));
        rest = after;
        loop {
            match reader.read(&mut piece, limits) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(violation) => return (messages, Some(violation)),
            }
        }
        assert!(piece.is_empty(), "the reader left bytes of an incomplete message");
    }
    (messages, None)
}

/// Puts the bytes into the headers of proxies: as a line before that of a trusted proxy, as the beginning of the
/// proxy's own line, and as the whole.
///
/// # Panics
/// If a client that the proxy has named becomes another client, or a peer that is not trusted is believed.
pub fn forwarded(data: &[u8]) {
    let (proxy, stranger) = ([10, 0, 0, 1].into(), [192, 0, 2, 1].into());
    let Ok(networks) = "10.0.0.0/8".parse().map(|network: Network| vec![network]) else { return };
    let client: IpAddr = [203, 0, 113, 9].into();
    for (header, name, named) in [
        (ForwardedHeader::XForwardedFor, "x-forwarded-for", "203.0.113.9"),
        (ForwardedHeader::Forwarded, "forwarded", "for=203.0.113.9"),
    ] {
        let trusted = TrustedProxies { networks: networks.clone(), header };
        let seen = |peer: IpAddr, lines: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(name, HeaderValue::from_bytes(line).ok()?);
            }
            Some(trusted.client(peer, &headers))
        };
        let _ = seen(proxy, &[data]);
        assert!(seen(stranger, &[data]).is_none_or(|seen| seen == stranger));
        let before = seen(proxy, &[data, named.as_bytes()]);
        assert!(before.is_none_or(|seen| seen == client), "{name}: a line before the proxy's");
        // An open quote of the client makes the line unreadable, and then the proxy counts as the client.
        let joined = seen(proxy, &[&[data, b", ", named.as_bytes()].concat()]);
        assert!(joined.is_none_or(|seen| [client, proxy].contains(&seen)), "{name}: {joined:?}");
    }
}

/// Opens the input as a token and as a cursor; then seals values of the input, opens them, and opens them
/// damaged, exchanged and for other listings.
///
/// # Panics
/// If a text opens that the signer has not sealed for this purpose, or a sealed value comes back changed.
pub fn sealed(data: &[u8]) {
    let signer = Signer::from_key([7; 32]);
    if let Ok(text) = std::str::from_utf8(data) {
        assert!(signer.check_token(text).is_err(), "a forged token is accepted");
        assert!(signer.open_cursor("listing", text).is_err(), "a forged cursor is accepted");
    }
    let Some((numbers, rest)) = data.split_first_chunk::<16>() else { return };
    let listing = String::from_utf8_lossy(rest);
    let [time, id] = [&numbers[..8], &numbers[8..]]
        .map(|bytes| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    let cursor = Cursor { time, id };
    let text = signer.seal_cursor(&listing, cursor);
    assert_eq!(signer.open_cursor(&listing, &text), Ok(cursor));
    assert!(signer.open_cursor(&format!("{listing}0"), &text).is_err(), "another listing");
    assert!(signer.check_token(&text).is_err(), "a cursor is accepted as a token");

    let (token, expected) = signer.issue_token(&listing, Duration::from_secs(60));
    assert_eq!(signer.check_token(&token), Ok(expected));
    assert!(signer.open_cursor(&listing, &token).is_err(), "a token is accepted as a cursor");
    for (text, opens) in [
        (
            &text,
            &(|text: &str| signer.open_cursor(&listing, text).is_ok()) as &dyn Fn(&str) -> bool,
        ),
        (&token, &|text: &str| signer.check_token(text).is_ok()),
    ] {
        let mut changed = text.clone().into_bytes();
        let at = usize::from(numbers[0]) * 31 % changed.len();
        changed[at] ^= 1 << (numbers[1] % 7);
        // Only ASCII is changed in bits below the highest, so the text stays UTF-8.
        let changed = String::from_utf8(changed).unwrap_or_default();
        assert!(!opens(&changed), "a changed text opens: {changed}");
        assert!(!opens(&text[..at]), "a part of a text opens");
    }
}
