//! Answers of HTTP/1.1 servers, as the clients of the workloads take them: complete, with a length, and with
//! nothing behind.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer<'a> {
    pub(super) status: u16,
    pub(super) body: &'a [u8],
}

/// Sends a request, and receives bytes into a buffer until they parse.
pub(super) async fn exchange<T>(
    stream: &mut TcpStream,
    request: &[u8],
    buffer: &mut Vec<u8>,
    parse: impl Fn(&[u8]) -> io::Result<Option<T>>,
) -> io::Result<T> {
    stream.write_all(request).await?;
    buffer.clear();
    loop {
        buffer.reserve(4096);
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(parsed) = parse(buffer)? {
            return Ok(parsed);
        }
    }
}

/// Parses an answer; returns `None` if it is not complete.
pub(super) fn parse(bytes: &[u8]) -> io::Result<Option<Answer<'_>>> {
    let mut rest = bytes;
    let mut length = None;
    let Some(first) = next_line(&mut rest) else { return Ok(None) };
    let status = first.strip_prefix(b"HTTP/1.1 ").and_then(|status| number(status.get(..3)?));
    let status = status.ok_or_else(|| malformed("has no status", bytes))? as u16;
    loop {
        let Some(line) = next_line(&mut rest) else { return Ok(None) };
        if line.is_empty() {
            break;
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            return Err(malformed("has a line without a colon", bytes));
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let value = number(value).ok_or_else(|| malformed("has no valid length", bytes))?;
            if length.replace(value).is_some() {
                return Err(malformed("has two lengths", bytes));
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Err(malformed("is encoded", bytes));
        }
    }
    let length = match length {
        Some(length) => length,
        None if status == 204 => 0,
        None => return Err(malformed("has no length", bytes)),
    };
    match (rest.len() as u64).cmp(&length) {
        std::cmp::Ordering::Less => Ok(None),
        std::cmp::Ordering::Greater => Err(malformed("is too long", bytes)),
        std::cmp::Ordering::Equal => Ok(Some(Answer { status, body: rest })),
    }
}

/// Takes a line off the front, without its end; returns `None` if the line is not complete.
pub(super) fn next_line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    let line = &rest[..end];
    *rest = &rest[end + 1..];
    Some(line.strip_suffix(b"\r").unwrap_or(line))
}

pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

pub(super) fn malformed(fault: &str, bytes: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(bytes);
    io::Error::new(io::ErrorKind::InvalidData, format!("the answer {fault}: {text:?}"))
}
