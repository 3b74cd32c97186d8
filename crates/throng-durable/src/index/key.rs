//! The keys of an index: [`IndexField`], [`IndexKey`], and their encoding.
//!
//! | value | bytes |
//! |---|---|
//! | text, bytes | `0x01`, the bytes with `0x00 0xff` for each `0x00`, then `0x00 0x01` |
//! | integer, `bool` | `0x40` + *n* (less *n*, if it is negative), then the number in *n* bytes, as few as there can be |
//!
//! The bytes of two values are in the order of the values, and none are a prefix of others. A type of integers that
//! grows keeps its keys, and an entry is read without its type.

use std::borrow::Cow;

use self::sealed::Encode as _;

/// A field that can have an index: `#[durable(index)]` on it, or `#[durable(index, unique)]`.
///
/// Text, bytes, integers of at most 64 bits and `bool` can, and an `Option` of them, of which `None` is not in the
/// index. A type of your own has the key of one of its parts:
///
/// ```
/// use throng_durable::IndexField;
///
/// struct Email(String);
///
/// impl IndexField for Email {
///     type Key = str;
///
///     fn index_key(&self) -> Option<&str> {
///         self.0.index_key()
///     }
/// }
/// ```
///
/// The key must depend on nothing but what is stored of the field. A key that is computed in another way is for a new
/// [version](crate::Durable::VERSION) of the state.
#[diagnostic::on_unimplemented(
    message = "a field of the type `{Self}` has no index",
    label = "the type has no key for an index",
    note = "indexes are for text, bytes, integers of at most 64 bits, `bool`, and `Option` of these; implement \
            `throng_durable::IndexField` for a type of your own"
)]
pub trait IndexField {
    /// The type by which entities are looked up.
    type Key: IndexKey + ?Sized;

    /// Returns the key; `None` for a value that is not in the index.
    fn index_key(&self) -> Option<&Self::Key>;

    /// Appends the encoded key, if there is one.
    #[doc(hidden)]
    fn encode_into(&self, encoded: &mut Vec<u8>) {
        if let Some(key) = self.index_key() {
            key.encode(encoded);
        }
    }
}

/// A key of an index: `str`, `[u8]`, `bool`, and the integers of at most 64 bits.
pub trait IndexKey: sealed::Encode {}

mod sealed {
    pub trait Encode {
        fn encode(&self, encoded: &mut Vec<u8>);
    }
}

const BYTES: u8 = 0x01;
const ZERO: u8 = 0x40;
/// Bytes of a zero byte in text, and of its end.
const ESCAPED: [u8; 2] = [0x00, 0xff];
const END: [u8; 2] = [0x00, 0x01];

impl sealed::Encode for [u8] {
    fn encode(&self, encoded: &mut Vec<u8>) {
        encode_prefix(self, encoded);
        encoded.extend_from_slice(&END);
    }
}

impl sealed::Encode for str {
    fn encode(&self, encoded: &mut Vec<u8>) {
        self.as_bytes().encode(encoded);
    }
}

/// Appends the begin of all encoded keys that begin with these bytes.
pub(crate) fn encode_prefix(bytes: &[u8], encoded: &mut Vec<u8>) {
    encoded.push(BYTES);
    for (part, bytes) in bytes.split(|byte| *byte == 0).enumerate() {
        if part > 0 {
            encoded.extend_from_slice(&ESCAPED);
        }
        encoded.extend_from_slice(bytes);
    }
}

fn encode_integer(value: i128, encoded: &mut Vec<u8>) {
    let size = 16 - value.unsigned_abs().leading_zeros() as usize / 8;
    // A negative number of n bytes is as far from the greatest of n bytes.
    let (tag, offset) = match value < 0 {
        true => (ZERO - size as u8, (1i128 << (8 * size)) - 1),
        false => (ZERO + size as u8, 0),
    };
    encoded.push(tag);
    encoded.extend_from_slice(&(value + offset).to_be_bytes()[16 - size..]);
}

impl IndexKey for [u8] {}
impl IndexKey for str {}

macro_rules! keys {
    ($($integer:ty),*) => {$(
        impl sealed::Encode for $integer {
            fn encode(&self, encoded: &mut Vec<u8>) {
                encode_integer((*self).into(), encoded);
            }
        }
        impl IndexKey for $integer {}
        impl IndexField for $integer {
            type Key = $integer;
            fn index_key(&self) -> Option<&$integer> {
                Some(self)
            }
        }
    )*};
}

keys!(bool, u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! fields {
    ($($field:ty => $key:ty),*) => {$(
        impl IndexField for $field {
            type Key = $key;
            fn index_key(&self) -> Option<&$key> {
                Some(self)
            }
        }
    )*};
}

fields!(String => str, Box<str> => str, Cow<'static, str> => str, Vec<u8> => [u8], Box<[u8]> => [u8]);

impl<const N: usize> IndexField for [u8; N] {
    type Key = [u8];

    fn index_key(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl<F: IndexField> IndexField for Option<F> {
    type Key = F::Key;

    fn index_key(&self) -> Option<&F::Key> {
        self.as_ref()?.index_key()
    }
}

/// Splits an encoded key from what follows it; `None` if there is none.
pub(crate) fn split(encoded: &[u8]) -> Option<(&[u8], &[u8])> {
    let tag = *encoded.first()?;
    if tag != BYTES {
        return encoded.split_at_checked(1 + usize::from(tag.abs_diff(ZERO)));
    }
    let mut at = 1;
    loop {
        at += encoded[at..].iter().position(|byte| *byte == 0)? + 2;
        match encoded.get(at - 2..at)? {
            bytes if *bytes == END => return Some(encoded.split_at(at)),
            bytes if *bytes == ESCAPED => {}
            _ => return None,
        }
    }
}

/// Returns an encoded key as text for people.
pub(crate) fn describe(encoded: &[u8]) -> String {
    match encoded {
        [BYTES, bytes @ .., 0x00, 0x01] => {
            let mut text = Vec::new();
            let mut parts = bytes.split(|byte| *byte == 0);
            text.extend_from_slice(parts.next().unwrap_or_default());
            for part in parts {
                text.push(0);
                text.extend_from_slice(part.get(1..).unwrap_or_default());
            }
            match String::from_utf8(text) {
                Ok(text) => format!("{text:?}"),
                Err(bytes) => format!("b\"{}\"", bytes.as_bytes().escape_ascii()),
            }
        }
        [tag, bytes @ ..] => {
            let number = bytes.iter().fold(0, |number, byte| number << 8 | i128::from(*byte));
            let offset = if *tag < ZERO { (1i128 << (8 * bytes.len().min(15))) - 1 } else { 0 };
            (number - offset).to_string()
        }
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::sealed::Encode;
    use super::*;

    fn encoded<K: Encode + ?Sized>(key: &K) -> Vec<u8> {
        let mut encoded = Vec::new();
        key.encode(&mut encoded);
        encoded
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0), Just(1), Just(0xfe), Just(0xff)], 0..5)
    }

    fn integer() -> impl Strategy<Value = i64> {
        prop_oneof![
            any::<i64>(),
            -300i64..300,
            prop::sample::select(vec![
                i64::MIN,
                i64::MIN + 1,
                -65536,
                -65535,
                65535,
                65536,
                i64::MAX
            ]),
        ]
    }

    proptest! {
        #[test]
        fn encoded_keys_are_in_the_order_of_the_keys_and_end_where_they_end(
            (a, b) in (bytes(), bytes()),
            (m, n) in (integer(), integer()),
            rest in "[a\u{0}é]{0,3}",
        ) {
            prop_assert_eq!(encoded(&a[..]).cmp(&encoded(&b[..])), a.cmp(&b));
            prop_assert_eq!(encoded(&m).cmp(&encoded(&n)), m.cmp(&n));
            prop_assert_eq!(encoded(&(m as u64)).cmp(&encoded(&(n as u64))), (m as u64).cmp(&(n as u64)));
            for key in [encoded(&a[..]), encoded(&m), encoded(&(m as u64))] {
                let entry = [&key, rest.as_bytes()].concat();
                prop_assert_eq!(split(&entry), Some((&key[..], rest.as_bytes())));
                prop_assert_eq!(split(&key[..key.len() - 1]), None);
            }
            prop_assert!(a == b || !encoded(&a[..]).starts_with(&encoded(&b[..])));
            prop_assert!(m == n || !encoded(&m).starts_with(&encoded(&n)));
            let mut prefix = Vec::new();
            encode_prefix(&b, &mut prefix);
            prop_assert_eq!(encoded(&a[..]).starts_with(&prefix), a.starts_with(&b));
            prop_assert_eq!(describe(&encoded(&m)), m.to_string());
            prop_assert_eq!(describe(&encoded(&(m as u64))), (m as u64).to_string());
        }
    }

    #[test]
    fn keys_are_shown_as_people_write_them() {
        assert_eq!(describe(&encoded("a\0b")), "\"a\\0b\"");
        assert_eq!(describe(&encoded(&[0xff, 0][..])), "b\"\\xff\\x00\"");
        assert_eq!(describe(&encoded(&true)), "1");
        assert_eq!(encoded(&7u8), encoded(&7i64));
    }
}
