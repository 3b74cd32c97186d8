//! Framing of the bytes of requests before hyper reads them: heads are checked one at a time,
//! bodies are measured.
//!
//! ```text
//!              ┌──────────── end of body ────────────┐
//!              ▼                                     │
//! stream ──► Head ──whole and sound──► its bytes ──► Body ──► hyper
//!              │                                     │
//!              └─► Refused: the client gets a 4xx    └─► Broken: the handler gets an error
//! ```
//!
//! hyper is more lenient than programs in front of it may be: it accepts a bare LF as a line end, a
//! length beside `chunked`, and a repeated length. Requests are smuggled through two programs that
//! read the same bytes as different requests, so this file rejects such heads.
//!
//! Invariants: hyper gets no byte of a head before the whole head is checked, and no byte after the
//! end of a body before the next head is checked. A head has at most `bytes_max` bytes, including
//! the CR LF CR LF at its end.

use axum::http::StatusCode;

use crate::http::Problem;
use crate::http::extract::body_too_large;

/// Reads the requests of one connection.
#[derive(Debug)]
pub(crate) struct Requests {
    bytes_max: usize,
    /// Bytes from the stream that hyper does not have yet.
    unread: Vec<u8>,
    state: RequestState,
}

#[derive(Debug)]
enum RequestState {
    /// Expects a head, of which `checked` bytes are checked.
    Head { checked: usize },
    /// Delivers a checked head, of which `left` bytes remain, followed by `body`.
    Sound { left: usize, body: BodyLength },
    /// Delivers a body, of which `left` bytes are still to come.
    Body { left: u64 },
    /// Delivers a chunked body.
    Chunks(ChunkState),
    /// The body does not match its head.
    Broken,
    /// The head is rejected.
    Refused(HeadRefusal),
}

/// Length of a body, as declared in its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyLength {
    Bytes(u64),
    Chunked,
}

/// Outcome of an attempt to deliver bytes to hyper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Delivery {
    /// hyper got this number of bytes, at least one.
    Bytes(usize),
    /// The caller must read the stream first.
    NeedsInput,
    /// The body does not match its head; no further byte of it is delivered.
    Broken,
    /// The next head is rejected; the client must get the reason.
    Refused,
}

/// Reason for rejecting a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadRefusal {
    /// The head is longer than the limit.
    TooLarge,
    /// A line ends with LF alone, or contains a CR, a NUL or another control character.
    Control,
    /// A header line begins with white space, which continued the previous line in HTTP/1.0.
    Folded,
    /// The length of the body is repeated, declared in two ways, or not a number.
    Length,
    /// The declared length of the body is beyond what any server accepts.
    BodyTooLarge,
    /// The body has a transfer encoding other than chunked.
    Encoding,
}

impl Requests {
    /// Creates the reader for a connection with a limit of `bytes_max` bytes per head.
    pub(crate) fn new(bytes_max: usize) -> Requests {
        Requests { bytes_max, unread: Vec::new(), state: RequestState::Head { checked: 0 } }
    }

    /// Appends bytes that were read from the stream.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// Returns whether there are bytes that hyper has not seen.
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Returns the bytes that hyper has not seen.
    pub(crate) fn into_unread(self) -> Vec<u8> {
        self.unread
    }

    /// Returns the reason for which the connection has to end, if there is one.
    pub(crate) fn refusal(&self) -> Option<HeadRefusal> {
        match self.state {
            RequestState::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Delivers up to `room` of the available bytes to hyper, through `put`.
    pub(crate) fn deliver(&mut self, room: usize, put: impl FnOnce(&[u8])) -> Delivery {
        loop {
            let bytes = match &mut self.state {
                RequestState::Refused(_) => return Delivery::Refused,
                RequestState::Broken => return Delivery::Broken,
                RequestState::Head { checked } => {
                    match next_head(&mut self.unread, checked, self.bytes_max) {
                        Ok(None) => return Delivery::NeedsInput,
                        Ok(Some((left, body))) => self.state = RequestState::Sound { left, body },
                        Err(refusal) => self.state = RequestState::Refused(refusal),
                    }
                    continue;
                }
                RequestState::Sound { left: 0, body: BodyLength::Bytes(left) } => {
                    self.state = RequestState::Body { left: *left };
                    continue;
                }
                RequestState::Sound { left: 0, body: BodyLength::Chunked } => {
                    self.state = RequestState::Chunks(ChunkState::default());
                    continue;
                }
                RequestState::Body { left: 0 } | RequestState::Chunks(ChunkState::Ended) => {
                    self.state = RequestState::Head { checked: 0 };
                    continue;
                }
                _ if self.unread.is_empty() => return Delivery::NeedsInput,
                RequestState::Sound { left, .. } => {
                    let bytes = room.min(*left);
                    *left -= bytes;
                    bytes
                }
                RequestState::Body { left } => {
                    let available = room.min(self.unread.len());
                    let bytes =
                        usize::try_from(*left).map_or(available, |left| left.min(available));
                    *left -= bytes as u64;
                    bytes
                }
                RequestState::Chunks(chunks) => {
                    let available = room.min(self.unread.len());
                    match chunks.pass(&self.unread[..available]) {
                        Some(bytes) => bytes,
                        None => {
                            self.state = RequestState::Broken;
                            continue;
                        }
                    }
                }
            };
            put(&self.unread[..bytes]);
            self.unread.drain(..bytes);
            return Delivery::Bytes(bytes);
        }
    }
}

impl HeadRefusal {
    /// Returns the answer for the client.
    pub(crate) fn problem(self) -> Problem {
        let malformed = |detail| Problem::new(StatusCode::BAD_REQUEST, "malformed-request", detail);
        match self {
            HeadRefusal::TooLarge => head_too_large(),
            HeadRefusal::Control => malformed(
                "a line of the head does not end with CR LF or contains a control character",
            ),
            HeadRefusal::Folded => malformed(
                "a header line begins with white space; obsolete line folding is not supported",
            ),
            HeadRefusal::Length => malformed(
                "the length of the body is ambiguous: send one numeric Content-Length or Transfer-Encoding, not both",
            ),
            HeadRefusal::BodyTooLarge => body_too_large(),
            HeadRefusal::Encoding => Problem::new(
                StatusCode::NOT_IMPLEMENTED,
                "transfer-encoding-unknown",
                "the only supported transfer encoding is chunked",
            ),
        }
    }
}

/// Returns the problem for a head beyond the limits.
pub(crate) fn head_too_large() -> Problem {
    Problem::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "head-too-large",
        "the request's head has more bytes or header lines than this server accepts",
    )
}

/// Returns the length of the next head, and of its body, once the head is complete. Drops empty
/// lines before it.
fn next_head(
    unread: &mut Vec<u8>,
    checked: &mut usize,
    bytes_max: usize,
) -> Result<Option<(usize, BodyLength)>, HeadRefusal> {
    // The CR of an empty line may have arrived and been checked before its LF.
    if *checked < 2 && unread.starts_with(b"\r\n") {
        let empty_lines = unread.chunks_exact(2).take_while(|line| line == b"\r\n").count();
        unread.drain(..2 * empty_lines);
        *checked = 0;
    }
    let end = unread.len().min(bytes_max);
    let mut after_cr = *checked > 0 && unread[*checked - 1] == b'\r';
    for at in *checked..end {
        let byte = unread[at];
        let sound = match byte {
            b'\n' => after_cr,
            b'\r' | b'\t' | b' '..=b'~' | 0x80.. => !after_cr,
            _ => false,
        };
        if !sound {
            return Err(HeadRefusal::Control);
        }
        after_cr = byte == b'\r';
        if byte == b'\n' && unread[..=at].ends_with(b"\r\n\r\n") {
            return body(&unread[..=at]).map(|body| Some((at + 1, body)));
        }
    }
    *checked = end;
    if unread.len() > end { Err(HeadRefusal::TooLarge) } else { Ok(None) }
}

/// Returns the length of the body that follows a head.
fn body(head: &[u8]) -> Result<BodyLength, HeadRefusal> {
    let lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r"));
    let mut body = None;
    // hyper checks the request line and the names.
    for line in lines.skip(1).flatten() {
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return Err(HeadRefusal::Folded);
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let length_found = if name.eq_ignore_ascii_case(b"content-length") {
            BodyLength::Bytes(length(value)?)
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HeadRefusal::Encoding);
            }
            BodyLength::Chunked
        } else {
            continue;
        };
        if body.replace(length_found).is_some() {
            return Err(HeadRefusal::Length);
        }
    }
    Ok(body.unwrap_or(BodyLength::Bytes(0)))
}

fn length(value: &[u8]) -> Result<u64, HeadRefusal> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(HeadRefusal::Length);
    }
    let digits = std::str::from_utf8(value).map_err(|_| HeadRefusal::Length)?;
    // The value is all digits, so a failure to parse means overflow. hyper rejects the largest
    // numbers, too.
    match digits.parse() {
        Ok(length) if length <= LENGTH_MAX => Ok(length),
        _ => Err(HeadRefusal::BodyTooLarge),
    }
}

/// Largest body length that is accepted here; the server's own limit is far below it.
const LENGTH_MAX: u64 = i64::MAX as u64;

/// Position within a chunked body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    /// Before the size of a chunk.
    #[default]
    Start,
    /// In the size of a chunk; holds the value read so far.
    Size(u64),
    /// In white space after the size.
    SizeBlank(u64),
    /// In the chunk extension after the size.
    Extension(u64),
    /// Before the LF of the size line.
    SizeLf(u64),
    /// Within a chunk, of which this number of bytes is still to come.
    Data(u64),
    DataCr,
    DataLf,
    /// At the beginning of a line after the last chunk.
    TrailerStart,
    Trailer,
    TrailerLf,
    /// Before the LF that ends the body.
    EndLf,
    Ended,
}

impl ChunkState {
    /// Returns the number of leading bytes that belong to the body, at least one, or `None` if the
    /// body is malformed.
    fn pass(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() && *self != ChunkState::Ended {
            if let ChunkState::Data(left) = self {
                let rest = bytes.len() - at;
                let passed = usize::try_from(*left).map_or(rest, |left| left.min(rest));
                *left -= passed as u64;
                at += passed;
                if *left == 0 {
                    *self = ChunkState::DataCr;
                }
                continue;
            }
            *self = self.after(bytes[at])?;
            at += 1;
        }
        Some(at)
    }

    /// Returns the state after a byte outside a chunk's data.
    fn after(self, byte: u8) -> Option<ChunkState> {
        let text = matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
        Some(match (self, byte) {
            (ChunkState::Start, _) => ChunkState::Size(digit(byte)?),
            (ChunkState::Size(size) | ChunkState::SizeBlank(size), b'\r') => {
                ChunkState::SizeLf(size)
            }
            (ChunkState::Size(size) | ChunkState::SizeBlank(size), b';') => {
                ChunkState::Extension(size)
            }
            // RFC 9112, 7.1.1 allows white space before the semicolon; some senders pad sizes with
            // it before the CR.
            (ChunkState::Size(size) | ChunkState::SizeBlank(size), b' ' | b'\t') => {
                ChunkState::SizeBlank(size)
            }
            (ChunkState::Size(size), _) if size <= LENGTH_MAX >> 4 => {
                ChunkState::Size(size << 4 | digit(byte)?)
            }
            (ChunkState::Extension(size), b'\r') => ChunkState::SizeLf(size),
            (ChunkState::Extension(size), _) if text => ChunkState::Extension(size),
            (ChunkState::SizeLf(0), b'\n') => ChunkState::TrailerStart,
            (ChunkState::SizeLf(size), b'\n') => ChunkState::Data(size),
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => ChunkState::Start,
            (ChunkState::TrailerStart, b'\r') => ChunkState::EndLf,
            (ChunkState::Trailer, b'\r') => ChunkState::TrailerLf,
            (ChunkState::TrailerStart | ChunkState::Trailer, _) if text => ChunkState::Trailer,
            (ChunkState::TrailerLf, b'\n') => ChunkState::TrailerStart,
            (ChunkState::EndLf, b'\n') => ChunkState::Ended,
            _ => return None,
        })
    }
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all bytes that hyper gets of `bytes`, fed in pieces of `piece` bytes, and the
    /// outcome.
    fn given(
        bytes: &[u8],
        piece: usize,
        bytes_max: usize,
    ) -> (Vec<u8>, Delivery, Option<HeadRefusal>) {
        let mut requests = Requests::new(bytes_max);
        let mut all = Vec::new();
        let mut last = Delivery::NeedsInput;
        for piece in bytes.chunks(piece) {
            requests.feed(piece);
            loop {
                last = requests.deliver(piece.len(), |bytes| all.extend_from_slice(bytes));
                if !matches!(last, Delivery::Bytes(_)) {
                    break;
                }
            }
        }
        (all, last, requests.refusal())
    }

    #[test]
    fn requests_pass_as_they_are_however_they_are_cut() {
        let requests: &[&[u8]] = &[
            b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-LENGTH:  5 \r\n\r\n\r\n\r\n\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n5\r\n\r\n\r\n\n\r\nA;b=\"c\"\r\n0123456789\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5 \r\nhello\r\n5 \t;a\r\nhello\r\n0 \r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n000\r\na: b\r\nc: d\r\n\r\n",
            b"GET /\xff HTTP/1.1\r\na:\tb\r\n\r\n",
        ];
        let whole = requests.concat();
        for piece in 1..whole.len() {
            assert_eq!(
                given(&whole, piece, 100),
                (whole.clone(), Delivery::NeedsInput, None),
                "{piece}"
            );
        }
        let before = [b"\r\n\r\n".as_slice(), &whole].concat();
        for piece in 1..before.len() {
            assert_eq!(given(&before, piece, 100).0, whole, "{piece}");
        }
    }

    #[test]
    fn nothing_of_a_head_passes_before_it_is_whole() {
        let head = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        for end in 0..head.len() {
            assert_eq!(given(&head[..end], 3, 100), (Vec::new(), Delivery::NeedsInput, None));
        }
    }

    #[test]
    fn empty_lines_are_no_head_however_they_are_cut() {
        let mut requests = Requests::new(100);
        for piece in [b"\r".as_slice(), b"\n\r\n", b"\r\n\r", b"\n\r", b"\n"] {
            requests.feed(piece);
            let given = requests.deliver(100, |bytes| panic!("hyper got {bytes:?}"));
            assert_eq!(given, Delivery::NeedsInput, "{piece:?}");
        }
        assert!(!requests.has_unread());
    }

    #[test]
    fn a_head_may_have_the_maximum_of_bytes_and_no_more() {
        let head = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        for piece in [1, head.len()] {
            assert_eq!(given(head, piece, head.len()).0, head);
            let (passed, _, refusal) = given(head, piece, head.len() - 1);
            assert_eq!((passed, refusal), (Vec::new(), Some(HeadRefusal::TooLarge)));
        }
    }

    #[test]
    fn a_head_that_two_programs_may_read_differently_is_refused() {
        let cases: &[(&[u8], HeadRefusal)] = &[
            (b"GET / HTTP/1.1\nhost: x\r\n\r\n", HeadRefusal::Control),
            (b"GET / HTTP/1.1\r\nhost: x\n\r\n", HeadRefusal::Control),
            (b"GET / HTTP/1.1\r\nhost: x\r\n\n", HeadRefusal::Control),
            (b"\nGET / HTTP/1.1\r\n\r\n", HeadRefusal::Control),
            (b"GET / HTTP/1.1\r\nhost: x\ry: z\r\n\r\n", HeadRefusal::Control),
            (b"GET / HTTP/1.1\r\nhost: x\r\r\n\r\n", HeadRefusal::Control),
            (b"GET / HTTP/1.1\r\nhost: \0\r\n\r\n", HeadRefusal::Control),
            (b"\x16\x03\x01\x02\x00\x01", HeadRefusal::Control),
            (b"GET / HTTP/1.1\r\nhost: x\r\n y\r\n\r\n", HeadRefusal::Folded),
            (b"GET / HTTP/1.1\r\n\thost: x\r\n\r\n", HeadRefusal::Folded),
            (
                b"P / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
                HeadRefusal::Length,
            ),
            (b"P / HTTP/1.1\r\ncontent-length: 1, 1\r\n\r\n", HeadRefusal::Length),
            (b"P / HTTP/1.1\r\ncontent-length: +1\r\n\r\n", HeadRefusal::Length),
            (b"P / HTTP/1.1\r\ncontent-length:\r\n\r\n", HeadRefusal::Length),
            (
                b"P / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n",
                HeadRefusal::Length,
            ),
            (
                b"P / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
                HeadRefusal::Length,
            ),
            (
                b"P / HTTP/1.1\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
                HeadRefusal::Length,
            ),
            (b"P / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n", HeadRefusal::Encoding),
            (
                b"P / HTTP/1.1\r\ncontent-length: 9223372036854775808\r\n\r\n",
                HeadRefusal::BodyTooLarge,
            ),
            (
                b"P / HTTP/1.1\r\ncontent-length: 99999999999999999999999999\r\n\r\n",
                HeadRefusal::BodyTooLarge,
            ),
        ];
        for (bytes, refusal) in cases {
            for piece in [1, 5, bytes.len()] {
                let text = String::from_utf8_lossy(bytes);
                let (passed, ended, found) = given(bytes, piece, 100);
                assert_eq!((ended, found), (Delivery::Refused, Some(*refusal)), "{text:?}");
                assert!(passed.is_empty(), "{text:?}");
            }
        }
    }

    #[test]
    fn a_body_that_is_not_in_chunks_as_it_says_is_broken() {
        let head = b"P / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n".as_slice();
        for broken in [
            b"5\nhello\r\n0\r\n\r\n".as_slice(),
            b"5\r\nhello\n0\r\n\r\n",
            b"5\r\nhello!\r\n0\r\n\r\n",
            b" 5\r\nhello\r\n0\r\n\r\n",
            b"5 0\r\nhello\r\n0\r\n\r\n",
            b"5 \nhello\r\n0\r\n\r\n",
            b"5;a\nb\r\nhello\r\n0\r\n\r\n",
            b"\r\n",
            b"0\r\na: b\n\r\n",
            b"0\r\n\n",
            b"10000000000000000\r\n",
        ] {
            for piece in [1, 100] {
                let bytes = [head, broken].concat();
                let (_, ended, refusal) = given(&bytes, piece, 100);
                let text = String::from_utf8_lossy(broken);
                assert_eq!((ended, refusal), (Delivery::Broken, None), "{text:?}");
            }
        }
    }
}
