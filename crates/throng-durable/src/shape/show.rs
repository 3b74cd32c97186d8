//! Text of a value by its stored shape, for people.
//!
//! The text is like JSON: `{"text": "hello", "marks": [1, 2], "state": {"Sent": "2026-01-01"}}`. A variant without
//! content is its name, bytes are a text with escapes, and a key of a map is written as any other value.
//!
//! Invariant: time and memory depend on the length allowed for the text, whatever the value and its shape are. The
//! number of elements in a damaged value may be anything, and a shape may contain itself.

use super::{Leaf, Node, Shape};

/// Number of values within each other that are shown.
const DEPTH_MAX: usize = 64;

/// Reason why a text ends before its value does.
enum Stop {
    /// The text has the length that is allowed.
    Full,
    /// The value does not have the shape.
    Unfit(String),
}

type Result = std::result::Result<(), Stop>;

/// Returns the text of a value; `…` is at the end of a text that is cut at about `bytes_max` bytes.
pub(super) fn show(
    shape: &Shape,
    encoded: &[u8],
    bytes_max: usize,
) -> std::result::Result<String, String> {
    let mut writer = Writer { shape, input: encoded, text: String::new(), bytes_max };
    match writer.value(0, 0) {
        Ok(()) if writer.input.is_empty() => Ok(writer.text),
        Ok(()) => Err(format!("{} bytes are left over", writer.input.len())),
        Err(Stop::Full) => Ok(writer.text + "…"),
        Err(Stop::Unfit(reason)) => Err(reason),
    }
}

struct Writer<'s, 'i> {
    shape: &'s Shape,
    /// The rest of the value.
    input: &'i [u8],
    text: String,
    bytes_max: usize,
}

impl<'i> Writer<'_, 'i> {
    fn take<T: serde::Deserialize<'i>>(&mut self) -> std::result::Result<T, Stop> {
        let taken = postcard::take_from_bytes(self.input);
        let (value, rest) = taken.map_err(|error| Stop::Unfit(error.to_string()))?;
        self.input = rest;
        Ok(value)
    }

    fn push(&mut self, text: &str) -> Result {
        if self.text.len() + text.len() > self.bytes_max {
            let left = self.bytes_max.saturating_sub(self.text.len());
            self.text.push_str(&text[..text.floor_char_boundary(left)]);
            return Err(Stop::Full);
        }
        self.text.push_str(text);
        Ok(())
    }

    /// Writes a text in quotes, with the escapes of JSON for all that does not print.
    fn quote(&mut self, text: &str) -> Result {
        self.push("\"")?;
        for symbol in text.chars() {
            match symbol {
                '"' => self.push("\\\"")?,
                '\\' => self.push("\\\\")?,
                '\'' => self.push("'")?,
                _ if symbol.escape_debug().len() == 1 => {
                    self.push(symbol.encode_utf8(&mut [0; 4]))?;
                }
                _ => {
                    for unit in symbol.encode_utf16(&mut [0; 2]) {
                        self.push(&format!("\\u{unit:04x}"))?;
                    }
                }
            }
        }
        self.push("\"")
    }

    fn value(&mut self, node: usize, depth: usize) -> Result {
        if depth == DEPTH_MAX {
            return Err(Stop::Full);
        }
        let shape = self.shape;
        match &shape.0[node] {
            Node::Unknown => Err(Stop::Unfit("its shape is not known".into())),
            Node::Leaf(leaf) => self.leaf(*leaf),
            Node::Option(part) => match self.take()? {
                false => self.push("null"),
                true => self.value(*part, depth + 1),
            },
            Node::Seq(part) if matches!(shape.0[*part], Node::Leaf(Leaf::U8)) => {
                self.leaf(Leaf::Bytes)
            }
            Node::Seq(part) => {
                let count = self.take()?;
                self.list(std::iter::repeat_n(*part, count), depth)
            }
            Node::Array(count, part) => self.list(std::iter::repeat_n(*part, *count), depth),
            Node::Tuple(parts) => self.list(parts.iter().copied(), depth),
            Node::Map(key, value) => {
                let count: usize = self.take()?;
                self.push("{")?;
                for at in 0..count {
                    self.push(if at == 0 { "" } else { ", " })?;
                    self.value(*key, depth + 1)?;
                    self.push(": ")?;
                    self.value(*value, depth + 1)?;
                }
                self.push("}")
            }
            Node::Struct(fields) => {
                self.push("{")?;
                for (at, (name, part)) in fields.iter().enumerate() {
                    self.push(if at == 0 { "" } else { ", " })?;
                    self.named(name, *part, depth)?;
                }
                self.push("}")
            }
            Node::Enum(variants) => {
                let number: u32 = self.take()?;
                let Some((name, part)) = variants.get(number as usize) else {
                    return Err(Stop::Unfit(format!("it has no variant {number}")));
                };
                if matches!(shape.0[*part], Node::Leaf(Leaf::Unit)) {
                    return self.quote(name);
                }
                self.push("{")?;
                self.named(name, *part, depth)?;
                self.push("}")
            }
        }
    }

    fn named(&mut self, name: &str, part: usize, depth: usize) -> Result {
        self.quote(if name.is_empty() { "?" } else { name })?;
        self.push(": ")?;
        self.value(part, depth + 1)
    }

    fn list(&mut self, parts: impl Iterator<Item = usize>, depth: usize) -> Result {
        self.push("[")?;
        for (at, part) in parts.enumerate() {
            self.push(if at == 0 { "" } else { ", " })?;
            self.value(part, depth + 1)?;
        }
        self.push("]")
    }

    fn leaf(&mut self, leaf: Leaf) -> Result {
        let text = match leaf {
            Leaf::Unit => "null".into(),
            Leaf::Bool => self.take::<bool>()?.to_string(),
            Leaf::I8 => self.take::<i8>()?.to_string(),
            Leaf::I16 => self.take::<i16>()?.to_string(),
            Leaf::I32 => self.take::<i32>()?.to_string(),
            Leaf::I64 => self.take::<i64>()?.to_string(),
            Leaf::I128 => self.take::<i128>()?.to_string(),
            Leaf::U8 => self.take::<u8>()?.to_string(),
            Leaf::U16 => self.take::<u16>()?.to_string(),
            Leaf::U32 => self.take::<u32>()?.to_string(),
            Leaf::U64 => self.take::<u64>()?.to_string(),
            Leaf::U128 => self.take::<u128>()?.to_string(),
            Leaf::F32 => format!("{:?}", self.take::<f32>()?),
            Leaf::F64 => format!("{:?}", self.take::<f64>()?),
            Leaf::Char => return self.take::<char>().and_then(|own| self.quote(&own.to_string())),
            Leaf::Str => return self.take::<&str>().and_then(|own| self.quote(own)),
            Leaf::Bytes => {
                let bytes: &[u8] = self.take()?;
                self.push("\"")?;
                for byte in bytes {
                    self.push(&byte.escape_ascii().to_string())?;
                }
                "\"".into()
            }
        };
        self.push(&text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    enum Mark {
        None,
        One(u8),
        Two { by: Option<String>, at: (i64, f64) },
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Nest(Vec<Nest>);

    fn shown<T: Serialize + DeserializeOwned + Debug>(value: &T, bytes_max: usize) -> String {
        let encoded = postcard::to_stdvec(value).unwrap();
        Shape::of_stored::<T>().unwrap().show(&encoded, bytes_max).unwrap()
    }

    #[test]
    fn values_are_shown_by_their_names() {
        let two = Mark::Two { by: Some("ann".into()), at: (-1, 0.5) };
        let marks = vec![Mark::None, Mark::One(7), two];
        let text = r#"["None", {"One": 7}, {"Two": {"by": "ann", "at": [-1, 0.5]}}]"#;
        assert_eq!(shown(&marks, 1_000), text);
        let map = BTreeMap::from([(1u8, vec![0u8, b'a']), (2, vec![])]);
        assert_eq!(shown(&map, 1_000), r#"{1: "\x00a", 2: ""}"#);
        assert_eq!(shown(&[None, Some(u128::MAX)], 1_000), format!("[null, {}]", u128::MAX));
    }

    #[test]
    fn texts_that_do_not_print_are_escaped() {
        let hostile = "a'\"\\\n\u{1b}[2J\u{202e}\u{200b}<script>ä\u{10ffff}";
        let text = r#""a'\"\\\u000a\u001b[2J\u202e\u200b<script>ä\udbff\udfff""#;
        assert_eq!(shown(&hostile.to_owned(), 1_000), text);
    }

    #[test]
    fn a_text_has_the_length_that_is_allowed() {
        let long = "ä".repeat(100);
        for bytes_max in 0..110 {
            let text = shown(&(long.clone(), 1u8), bytes_max);
            assert!(text.len() <= bytes_max + "…".len() && text.ends_with('…'), "{text}");
        }
        // A number of elements that take no bytes.
        let shape = Shape::of::<Vec<()>>().unwrap();
        let encoded = postcard::to_stdvec(&u64::MAX).unwrap();
        assert!(shape.show(&encoded, 100).unwrap().starts_with("[null, null"));
        // A value within itself, deeper than any stack.
        let shape = Shape::of::<Nest>().unwrap();
        assert!(shape.show(&vec![1; 1 << 20], 1 << 20).unwrap().ends_with("[[…"));
    }

    #[test]
    fn a_value_of_another_shape_is_not_shown() {
        let shape = Shape::of::<(u8, Mark)>().unwrap();
        for encoded in [&[][..], &[1], &[1, 9], &[1, 0, 0]] {
            assert!(shape.show(encoded, 100).is_err(), "{encoded:?}");
        }
    }
}
