//! Formats of keys and values in the output, and of keys on the command line.
//!
//! In the escaped format, each byte that is not printable ASCII is `\xNN` or one of `\t \r \n \\ \'
//! \"`. A printed key can be used on the command line.

use clap::Args;

/// Format of bytes.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ByteFormat {
    /// Print keys and values in hexadecimal, and read keys from the command line as hexadecimal
    #[arg(long)]
    hex: bool,

    /// Print keys and values without escapes; keys on the command line are still escaped
    #[arg(long, conflicts_with_all = ["hex", "json"])]
    raw: bool,

    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

impl ByteFormat {
    /// Returns the bytes in the output format.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Vec<u8> {
        if self.raw { bytes.to_vec() } else { self.text(bytes).into_bytes() }
    }

    /// Returns the bytes as text; the raw format falls back to escapes.
    pub(crate) fn text(self, bytes: &[u8]) -> String {
        if self.hex {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        } else {
            bytes.escape_ascii().to_string()
        }
    }

    /// Parses a key from the command line.
    ///
    /// # Errors
    /// The key is not valid hexadecimal, or has an unknown escape.
    pub(crate) fn parse(self, typed: &str) -> Result<Vec<u8>, String> {
        if self.hex { parse_hex(typed) } else { parse_escaped(typed) }
    }
}

/// Parses bytes in hexadecimal.
pub(crate) fn parse_hex(typed: &str) -> Result<Vec<u8>, String> {
    let pair = |pair: &[u8]| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = typed.as_bytes().chunks(2).map(pair).collect();
    bytes.ok_or_else(|| format!("{typed:?} is not hexadecimal: write each byte as two digits"))
}

fn parse_escaped(typed: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(typed.len());
    let mut rest = typed.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, after) = match (*first, after) {
            (b'\\', [b'n', after @ ..]) => (b'\n', after),
            (b'\\', [b'r', after @ ..]) => (b'\r', after),
            (b'\\', [b't', after @ ..]) => (b'\t', after),
            (b'\\', [byte @ (b'\\' | b'\'' | b'"'), after @ ..]) => (*byte, after),
            (b'\\', [b'x', high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => return Err(no_escape(typed)),
            },
            (b'\\', _) => return Err(no_escape(typed)),
            (byte, after) => (byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    Ok(bytes)
}

fn no_escape(typed: &str) -> String {
    format!("unknown escape in {typed}; the known escapes are \\xNN \\t \\r \\n \\\\ \\' \\\"")
}

fn digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_keys_can_be_typed() {
        let all: Vec<u8> = (0..=255).collect();
        for hex in [false, true] {
            let show = ByteFormat { hex, raw: false, json: false };
            assert!(show.text(&all).bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
            assert_eq!(show.parse(&show.text(&all)).unwrap(), all);
            assert_eq!(show.parse("").unwrap(), b"");
        }
        let escaped = ByteFormat { hex: false, raw: true, json: false };
        assert_eq!(escaped.parse("ä").unwrap(), "ä".as_bytes());
        for wrong in ["\\", "\\x", "\\x1", "\\xg0", "\\q"] {
            assert!(escaped.parse(wrong).is_err(), "{wrong}");
        }
        let hex = ByteFormat { hex: true, raw: false, json: false };
        for wrong in ["0", "0g", "+1", "ä"] {
            assert!(hex.parse(wrong).is_err(), "{wrong}");
        }
    }
}
