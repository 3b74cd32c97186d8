//! [`Codec`]: encodes typed keys and values as bytes. This file also holds the codecs for bytes,
//! text and numbers.
//!
//! The codec of the keys determines the order of a database, which is the order of the bytes. The
//! numbers here are big-endian, signed numbers with their sign bit flipped, so they are in numeric
//! order.

/// Converts values of a single type to bytes and back.
///
/// ```
/// use throng_store::{Codec, CodecError, Store};
///
/// /// A point, as two numbers that are ordered by x.
/// struct Point;
///
/// impl Codec for Point {
///     type Item = (u32, u32);
///     type Decoded<'a> = (u32, u32);
///
///     fn encode<R>(&(x, y): &(u32, u32), with: impl FnOnce(&[u8]) -> R) -> Result<R, CodecError> {
///         Ok(with(&(u64::from(x) << 32 | u64::from(y)).to_be_bytes()))
///     }
///
///     fn decode(bytes: &[u8]) -> Result<(u32, u32), CodecError> {
///         let bytes = bytes.try_into().map_err(|_| CodecError::new("a point has eight bytes"))?;
///         let both = u64::from_be_bytes(bytes);
///         Ok(((both >> 32) as u32, both as u32))
///     }
/// }
///
/// # let directory = tempfile::tempdir()?;
/// # let store = Store::open(directory.path())?;
/// let names = store.database::<Point, throng_store::Str>("names")?;
/// names.put(&(3, 4), "the hut").wait()?;
/// assert_eq!(names.get(&store.snapshot()?, &(3, 4))?, Some("the hut"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Codec {
    /// Type of the values to encode.
    type Item: ?Sized;
    /// Type of the decoded values, which may borrow the bytes.
    type Decoded<'a>;

    /// Calls `with` with the encoded item, which need be neither copied nor allocated.
    ///
    /// # Errors
    ///
    /// If the item has no encoding.
    fn encode<R>(item: &Self::Item, with: impl FnOnce(&[u8]) -> R) -> Result<R, CodecError>;

    /// Decodes the item.
    ///
    /// # Errors
    ///
    /// If the bytes encode no item.
    fn decode(bytes: &[u8]) -> Result<Self::Decoded<'_>, CodecError>;
}

/// Error of encoding or decoding, as text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(String);

impl CodecError {
    /// Creates an error from a reason that can be part of a sentence.
    pub fn new(reason: impl Into<String>) -> CodecError {
        CodecError(reason.into())
    }
}

/// Codec of byte strings, which are stored unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

impl Codec for Bytes {
    type Item = [u8];
    type Decoded<'a> = &'a [u8];

    fn encode<R>(item: &[u8], with: impl FnOnce(&[u8]) -> R) -> Result<R, CodecError> {
        Ok(with(item))
    }

    fn decode(bytes: &[u8]) -> Result<&[u8], CodecError> {
        Ok(bytes)
    }
}

/// Codec of text, ordered by its UTF-8 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Str;

impl Codec for Str {
    type Item = str;
    type Decoded<'a> = &'a str;

    fn encode<R>(item: &str, with: impl FnOnce(&[u8]) -> R) -> Result<R, CodecError> {
        Ok(with(item.as_bytes()))
    }

    fn decode(bytes: &[u8]) -> Result<&str, CodecError> {
        std::str::from_utf8(bytes).map_err(|error| CodecError::new(error.to_string()))
    }
}

/// Codec of the empty value, for sets, in which only the keys matter.
#[derive(Clone, Copy, Debug)]
pub struct Unit;

impl Codec for Unit {
    type Item = ();
    type Decoded<'a> = ();

    fn encode<R>((): &(), with: impl FnOnce(&[u8]) -> R) -> Result<R, CodecError> {
        Ok(with(&[]))
    }

    fn decode(bytes: &[u8]) -> Result<(), CodecError> {
        if bytes.is_empty() { Ok(()) } else { Err(CodecError::new("a unit has no bytes")) }
    }
}

/// Generates codecs for numbers: name, type, unsigned type, and the bits to flip so that byte order
/// is numeric order.
macro_rules! numbers {
    ($($name:ident: $number:ty, $unsigned:ty, $flip:expr;)*) => {$(
        #[doc = concat!("A `", stringify!($number), "`, in numeric order.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Codec for $name {
            type Item = $number;
            type Decoded<'a> = $number;

            fn encode<R>(item: &$number, with: impl FnOnce(&[u8]) -> R) -> Result<R, CodecError> {
                Ok(with(&(*item as $unsigned ^ $flip).to_be_bytes()))
            }

            fn decode(bytes: &[u8]) -> Result<$number, CodecError> {
                let bytes = bytes.try_into().map_err(|_| {
                    CodecError::new(format!(
                        "{} bytes do not encode a {}", bytes.len(), stringify!($number)
                    ))
                })?;
                Ok((<$unsigned>::from_be_bytes(bytes) ^ $flip) as $number)
            }
        }
    )*};
}

numbers! {
    U32: u32, u32, 0;
    U64: u64, u64, 0;
    U128: u128, u128, 0;
    I64: i64, u64, 1 << 63;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<C: Codec>(item: &C::Item) -> Vec<u8> {
        C::encode(item, <[u8]>::to_vec).unwrap()
    }

    #[test]
    fn numbers_keep_their_order_and_decode_to_themselves() {
        let signed = [i64::MIN, -300, -1, 0, 1, 255, 256, i64::MAX];
        let encoded: Vec<_> = signed.iter().map(bytes::<I64>).collect();
        assert!(encoded.is_sorted());
        assert!(encoded.iter().map(|bytes| I64::decode(bytes).unwrap()).eq(signed));

        let unsigned = [0, 1, 255, 256, u64::MAX];
        let encoded: Vec<_> = unsigned.iter().map(bytes::<U64>).collect();
        assert!(encoded.is_sorted());
        assert!(encoded.iter().map(|bytes| U64::decode(bytes).unwrap()).eq(unsigned));
        assert_eq!(U32::decode(&bytes::<U32>(&7)), Ok(7));
        assert_eq!(U128::decode(&bytes::<U128>(&7)), Ok(7));
    }

    #[test]
    fn bytes_of_another_type_are_refused() {
        assert!(U64::decode(&[1, 2, 3]).is_err());
        assert!(Str::decode(&[0xff]).is_err());
        assert!(Unit::decode(&[0]).is_err());
        assert_eq!(Unit::decode(&bytes::<Unit>(&())), Ok(()));
    }
}
