//! Decoding of a value by the shape that it was stored with.

use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer,
    MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use super::{Leaf, Node, Shape};

/// Reason why a value does not fit the type that is asked for.
#[derive(Debug)]
struct Mismatch(String);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mismatch {}

impl serde::de::Error for Mismatch {
    fn custom<T: fmt::Display>(text: T) -> Mismatch {
        Mismatch(text.to_string())
    }
}

type Result<T> = std::result::Result<T, Mismatch>;

pub(super) fn read<T: DeserializeOwned>(
    shape: &Shape,
    mut encoded: &[u8],
) -> std::result::Result<T, String> {
    let value = Stored { shape, node: 0, input: &mut encoded };
    match T::deserialize(value) {
        Ok(value) if encoded.is_empty() => Ok(value),
        Ok(_) => Err(format!("{} bytes are left over", encoded.len())),
        Err(Mismatch(reason)) => Err(reason),
    }
}

/// A stored part of a value, of the shape of a node.
struct Stored<'s, 'i, 'de> {
    shape: &'s Shape,
    node: usize,
    input: &'i mut &'de [u8],
}

fn take<'de, T: Deserialize<'de>>(input: &mut &'de [u8]) -> Result<T> {
    let (value, rest) = postcard::take_from_bytes(input).map_err(Mismatch::custom)?;
    *input = rest;
    Ok(value)
}

impl<'s, 'i, 'de> Stored<'s, 'i, 'de> {
    /// Passes on the parts of a sequence, which the visitor must take all.
    fn visit_parts<V: Visitor<'de>>(
        self,
        nodes: impl Iterator<Item = usize>,
        visitor: V,
    ) -> Result<V::Value> {
        let mut parts = Parts { shape: self.shape, nodes, input: self.input };
        let value = visitor.visit_seq(&mut parts)?;
        match parts.nodes.next() {
            None => Ok(value),
            Some(_) => Err(Mismatch("it has more elements than the type".into())),
        }
    }
}

impl<'s, 'de> Deserializer<'de> for Stored<'s, '_, 'de> {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Stored { shape, node, input } = self;
        let leaf = match &shape.0[node] {
            Node::Unknown => return Err(Mismatch("its shape is not known".into())),
            Node::Leaf(leaf) => leaf,
            Node::Option(part) => {
                return match take(input)? {
                    false => visitor.visit_none(),
                    true => visitor.visit_some(Stored { shape, node: *part, input }),
                };
            }
            Node::Seq(part) => {
                let count = take(input)?;
                let parts = std::iter::repeat_n(*part, count);
                return Stored { shape, node, input }.visit_parts(parts, visitor);
            }
            Node::Array(count, part) => {
                let parts = std::iter::repeat_n(*part, *count);
                return Stored { shape, node, input }.visit_parts(parts, visitor);
            }
            Node::Tuple(parts) => {
                let parts = parts.iter().copied();
                return Stored { shape, node, input }.visit_parts(parts, visitor);
            }
            Node::Map(key, value) => {
                let left = take(input)?;
                return visitor.visit_map(Entries { shape, key: *key, value: *value, left, input });
            }
            Node::Struct(fields) => {
                return visitor.visit_map(Fields { shape, fields, input });
            }
            Node::Enum(variants) => {
                let number: u32 = take(input)?;
                let Some((name, part)) = variants.get(number as usize) else {
                    return Err(Mismatch(format!("it has no variant {number}")));
                };
                if name.is_empty() {
                    return Err(Mismatch(format!("the name of its variant {number} is not known")));
                }
                return visitor.visit_enum(Variant(name, Stored { shape, node: *part, input }));
            }
        };
        match leaf {
            Leaf::Unit => visitor.visit_unit(),
            Leaf::Bool => visitor.visit_bool(take(input)?),
            Leaf::I8 => visitor.visit_i8(take(input)?),
            Leaf::I16 => visitor.visit_i16(take(input)?),
            Leaf::I32 => visitor.visit_i32(take(input)?),
            Leaf::I64 => visitor.visit_i64(take(input)?),
            Leaf::I128 => visitor.visit_i128(take(input)?),
            Leaf::U8 => visitor.visit_u8(take(input)?),
            Leaf::U16 => visitor.visit_u16(take(input)?),
            Leaf::U32 => visitor.visit_u32(take(input)?),
            Leaf::U64 => visitor.visit_u64(take(input)?),
            Leaf::U128 => visitor.visit_u128(take(input)?),
            Leaf::F32 => visitor.visit_f32(take(input)?),
            Leaf::F64 => visitor.visit_f64(take(input)?),
            Leaf::Char => visitor.visit_char(take(input)?),
            Leaf::Str => visitor.visit_borrowed_str(take(input)?),
            Leaf::Bytes => visitor.visit_borrowed_bytes(take(input)?),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.shape.0[self.node] {
            Node::Option(_) => self.deserialize_any(visitor),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    /// A tuple has positions only, so it also takes the fields of a struct in their order, if there are as many.
    fn deserialize_tuple<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value> {
        match &self.shape.0[self.node] {
            Node::Struct(fields) if fields.len() == count => {
                let parts = fields.iter().map(|(_, part)| *part);
                self.visit_parts(parts, visitor)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_tuple(count, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match &self.shape.0[self.node] {
            Node::Struct(stored) => {
                // If fields have come and gone, one of them may have been renamed, and must not begin anew.
                let gone = stored.iter().find(|(name, _)| !fields.contains(&name.as_str()));
                let new = fields.iter().find(|new| stored.iter().all(|(name, _)| name != *new));
                if let (Some((gone, _)), Some(new)) = (gone, new) {
                    return Err(Mismatch(format!(
                        "its field `{gone}` is gone and the field `{new}` is new: if it was renamed, it \
                         needs `#[serde(alias = \"{gone}\")]`, and otherwise a field leaves before \
                         another one comes"
                    )));
                }
                self.deserialize_any(visitor)
            }
            Node::Map(..) => Err(Mismatch("it is a map, and the type is a struct".into())),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match self.shape.0[self.node] {
            Node::Enum(_) => self.deserialize_any(visitor),
            _ => Err(Mismatch("it is no enum, and the type is one".into())),
        }
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq map identifier ignored_any
    }
}

/// The elements of a sequence or a tuple.
struct Parts<'s, 'i, 'de, I> {
    shape: &'s Shape,
    nodes: I,
    input: &'i mut &'de [u8],
}

impl<'de, I: Iterator<Item = usize>> SeqAccess<'de> for &mut Parts<'_, '_, 'de, I> {
    type Error = Mismatch;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        let Some(node) = self.nodes.next() else { return Ok(None) };
        seed.deserialize(Stored { shape: self.shape, node, input: self.input }).map(Some)
    }
}

/// The entries of a map.
struct Entries<'s, 'i, 'de> {
    shape: &'s Shape,
    key: usize,
    value: usize,
    left: usize,
    input: &'i mut &'de [u8],
}

impl<'de> MapAccess<'de> for Entries<'_, '_, 'de> {
    type Error = Mismatch;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(Stored { shape: self.shape, node: self.key, input: self.input }).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        seed.deserialize(Stored { shape: self.shape, node: self.value, input: self.input })
    }
}

/// The fields of a struct, by their names.
struct Fields<'s, 'i, 'de> {
    shape: &'s Shape,
    fields: &'s [(String, usize)],
    input: &'i mut &'de [u8],
}

impl<'de> MapAccess<'de> for Fields<'_, '_, 'de> {
    type Error = Mismatch;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        match self.fields.first() {
            None => Ok(None),
            Some((name, _)) if name.is_empty() => {
                Err(Mismatch("the name of one of its fields is not known".into()))
            }
            Some((name, _)) => seed.deserialize(name.as_str().into_deserializer()).map(Some),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        let Some(((name, node), rest)) = self.fields.split_first() else {
            return Err(Mismatch("it has no further field".into()));
        };
        self.fields = rest;
        let value = Stored { shape: self.shape, node: *node, input: self.input };
        seed.deserialize(value).map_err(|Mismatch(reason)| Mismatch(format!("`{name}`: {reason}")))
    }
}

/// A variant of an enum, by its name, with its content.
struct Variant<'s, 'i, 'de>(&'s str, Stored<'s, 'i, 'de>);

impl<'s, 'i, 'de> EnumAccess<'de> for Variant<'s, 'i, 'de> {
    type Error = Mismatch;
    type Variant = Stored<'s, 'i, 'de>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant)> {
        let Variant(name, content) = self;
        Ok((seed.deserialize(name.into_deserializer())?, content))
    }
}

impl<'de> VariantAccess<'de> for Stored<'_, '_, 'de> {
    type Error = Mismatch;

    fn unit_variant(self) -> Result<()> {
        <()>::deserialize(self)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_tuple(count, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_struct("", fields, visitor)
    }
}
