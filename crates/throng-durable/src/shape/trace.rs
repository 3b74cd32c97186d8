//! Finding out the shape of a type, by running its `Deserialize` on made-up values.
//!
//! A deserializer learns the type of each part from the method that asks for it. One run sees one variant of each
//! enum, and ends at the first part whose made-up value the type refuses. So there are many runs, and each goes
//! where the ones before have not been: a struct gets its fields as those of a map, without the ones that fail; an
//! enum gets the next variant; an optional part is left out once it fails. The runs end when the shape is whole, or
//! when none finds anything further.
//!
//! A type that contains itself comes back to a part that is *busy*. There it gets the least value that is known to
//! succeed: no elements, nothing optional, and of an enum the variant that succeeded first.

use std::any::type_name;
use std::collections::HashMap;
use std::fmt;

use serde::de::value::{StrDeserializer, U32Deserializer, U64Deserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

use super::{Leaf, Node, Shape};
use crate::users::catch;

/// Texts and numbers to begin with; the further ones are for types that refuse the first.
const MADE_UP: [(&str, u8); 9] = [
    ("a", 1),
    ("", 0),
    ("aaaa", 2),
    ("0", 1),
    ("aaaaaaaaaaaaaaaa", 1),
    ("1970-01-01T00:00:00Z", 1),
    ("00000000-0000-0000-0000-000000000000", 1),
    ("127.0.0.1:80", 1),
    ("a@a.aa", 1),
];

/// Most runs, for types so strange that each of them finds something.
const RUNS_MAX: usize = 5_000;
/// Most slots; the parts beyond them stay unknown.
const SLOTS_MAX: usize = 20_000;
/// Most elements of a tuple. A longer one is an array, whose elements share a slot.
const TUPLE_MAX: usize = 16;

/// Returns the shape of `T`, or the reason why its values cannot be decoded. `comes_back` checks that the least
/// value comes back from its encoding.
pub(super) fn trace<T: DeserializeOwned>(
    comes_back: impl FnOnce(T) -> bool,
) -> std::result::Result<Shape, &'static str> {
    let mut trace = Trace { slots: vec![Slot::default()], ..Trace::default() };
    let mut runs = 0;
    'tracing: for made_up in MADE_UP {
        trace.made_up = made_up;
        let mut before = None;
        while before != Some(trace.steps) && runs < RUNS_MAX {
            before = Some(trace.steps);
            runs += 1;
            let run = || drop(T::deserialize(Tracer { trace: &mut trace, at: 0, least: false }));
            // A user's code that panics is not asked again.
            if catch(run).is_err() || trace.is_whole(0) {
                break 'tracing;
            }
        }
    }
    if trace.is_undecided {
        return Err(
            "its `Deserialize` asks the encoding what comes next, as with serde's `flatten`, `untagged` \
                    and `tag`, and the encoding does not tell: the state needs a type without these",
        );
    }
    // Most parts that a `Serialize` may leave out are left out of the least value.
    trace.made_up = ("", 0);
    let least = || T::deserialize(Tracer { trace: &mut trace, at: 0, least: true }).map(comes_back);
    if let Ok(Ok(false)) = catch(least) {
        return Err(
            "a value is not read as it is written, as with serde's `skip_serializing_if`: all fields \
                    must be written, or left out by `skip`",
        );
    }
    Ok(trace.shape())
}

/// Everything that was found out.
#[derive(Default)]
struct Trace {
    slots: Vec<Slot>,
    /// Places of the types with names, by the types of their visitors.
    named: HashMap<(&'static str, &'static str), Named>,
    /// Number of things found out.
    news: usize,
    /// Number of things found out, or found to be of no use.
    steps: usize,
    made_up: (&'static str, u8),
    /// Whether the last value was asked for only to be ignored.
    was_ignored: bool,
    /// Whether the type leaves it to the encoding what a part is, which postcard does not know.
    is_undecided: bool,
}

/// A position in the type: the whole, a field, an element, the content of a variant.
#[derive(Default)]
struct Slot {
    /// The part; its own parts are slots.
    node: Option<Node>,
    /// The slot of the same type that was found first.
    same: Option<usize>,
    /// Whether a value could be made.
    is_good: bool,
    /// Number of news at the last attempt that brought none.
    tried: Option<usize>,
    fields: Fields,
    /// Whether an enum accepts numbers that no variant has.
    is_open: Option<bool>,
    /// Number of the variant of an enum that succeeded first.
    first_good: Option<usize>,
    /// Whether an enum has no variant with this content.
    is_absent: bool,
    /// Whether the name of the field was asked for.
    is_asked: bool,
}

/// Knowledge of the fields of a struct.
#[derive(Default)]
struct Fields {
    /// Way in which the type takes them.
    by: Access,
    /// Whether all are known.
    are_all: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Access {
    #[default]
    Number,
    Name,
    Order,
}

#[derive(Clone, Copy)]
struct Named {
    slot: usize,
    is_busy: bool,
}

impl Trace {
    fn add(&mut self) -> Result<usize> {
        if self.slots.len() == SLOTS_MAX {
            return Err(Stop(None));
        }
        self.slots.push(Slot::default());
        Ok(self.slots.len() - 1)
    }

    fn resolve(&self, mut slot: usize) -> usize {
        while let Some(same) = self.slots[slot].same {
            slot = same;
        }
        slot
    }

    /// Notes the part at a slot, unless it is known, and returns the slots of its parts.
    fn fill(
        &mut self,
        slot: usize,
        parts: usize,
        node: impl FnOnce(&[usize]) -> Node,
    ) -> Result<Vec<usize>> {
        if self.slots[slot].node.is_none() {
            let parts = (0..parts).map(|_| self.add()).collect::<Result<Vec<_>>>()?;
            self.slots[slot].node = Some(node(&parts));
            self.news();
        }
        Ok(self.slots[slot].node.as_ref().map(Node::parts).unwrap_or_default())
    }

    fn news(&mut self) {
        self.news += 1;
        self.steps += 1;
    }

    /// Runs an attempt to make the value of a slot.
    fn attempt<R>(
        &mut self,
        slot: usize,
        attempt: impl FnOnce(&mut Trace) -> Result<R>,
    ) -> Result<R> {
        let before = self.steps;
        let outcome = attempt(self);
        if outcome.is_ok() && !self.slots[slot].is_good {
            self.slots[slot].is_good = true;
            self.news();
        }
        if self.steps == before && self.slots[slot].tried != Some(self.news) {
            self.slots[slot].tried = Some(self.news);
            self.steps += 1;
        }
        outcome
    }

    /// Whether another attempt would find nothing, and make no value.
    fn is_dead(&self, slot: usize) -> bool {
        let slot = &self.slots[slot];
        !slot.is_good && slot.tried == Some(self.news)
    }

    /// Whether another attempt would find nothing.
    fn is_done(&self, slot: usize) -> bool {
        let Slot { is_absent, is_good, tried, .. } = self.slots[slot];
        is_absent || tried == Some(self.news) || (is_good && self.is_whole(slot))
    }

    /// Whether everything about the slot is known.
    fn is_whole(&self, slot: usize) -> bool {
        let (mut seen, mut open) = (vec![false; self.slots.len()], vec![slot]);
        while let Some(slot) = open.pop() {
            let slot = self.resolve(slot);
            if std::mem::replace(&mut seen[slot], true) {
                continue;
            }
            let Slot { node, fields, is_absent, .. } = &self.slots[slot];
            match node {
                _ if *is_absent => {}
                None => return false,
                Some(Node::Struct(names)) => {
                    let is_named = |(name, field): &(String, usize)| {
                        !name.is_empty() || self.slots[*field].is_asked
                    };
                    if !fields.are_all || !names.iter().all(is_named) {
                        return false;
                    }
                }
                Some(_) => {}
            }
            open.extend(node.as_ref().map(Node::parts).unwrap_or_default());
        }
        true
    }

    /// Collects the parts that were found.
    fn shape(&self) -> Shape {
        let mut shape = Shape(Vec::new());
        self.collect(0, &mut HashMap::new(), &mut shape);
        shape
    }

    fn collect(&self, slot: usize, done: &mut HashMap<usize, usize>, shape: &mut Shape) -> usize {
        let slot = self.resolve(slot);
        if let Some(done) = done.get(&slot) {
            return *done;
        }
        let Slot { node, fields, .. } = &self.slots[slot];
        if let Some(node @ Node::Leaf(_)) = node
            && let Some(same) = shape.0.iter().position(|other| other == node)
        {
            return same;
        }
        let at = shape.0.len();
        shape.0.push(Node::Unknown);
        done.insert(slot, at);
        let mut part = |slot: usize| self.collect(slot, done, shape);
        let node = match node {
            None | Some(Node::Unknown) => Node::Unknown,
            Some(Node::Struct(_)) if !fields.are_all => Node::Unknown,
            Some(Node::Leaf(leaf)) => Node::Leaf(*leaf),
            Some(Node::Option(content)) => Node::Option(part(*content)),
            Some(Node::Seq(element)) => Node::Seq(part(*element)),
            Some(Node::Map(key, value)) => Node::Map(part(*key), part(*value)),
            Some(Node::Tuple(parts)) => Node::Tuple(parts.iter().map(|slot| part(*slot)).collect()),
            Some(Node::Array(count, element)) => Node::Array(*count, part(*element)),
            Some(Node::Struct(fields)) => Node::Struct(
                fields.iter().map(|(name, slot)| (name.clone(), part(*slot))).collect(),
            ),
            Some(Node::Enum(variants)) => {
                let is_absent = |(_, slot): &&(String, usize)| self.slots[*slot].is_absent;
                // With other names for a variant, it is not known which belongs to which.
                let are_named = !variants.iter().any(|variant| is_absent(&variant))
                    && self.slots[slot].is_open == Some(false);
                let variants = variants.iter().filter(|variant| !is_absent(variant));
                let variant = |(name, slot): &(String, usize)| {
                    (if are_named { name.clone() } else { String::new() }, part(*slot))
                };
                Node::Enum(variants.map(variant).collect())
            }
        };
        shape.0[at] = node;
        at
    }
}

/// Reason why a run ends.
#[derive(Debug)]
struct Stop(
    /// The name of a field that was given twice.
    Option<&'static str>,
);

type Result<T> = std::result::Result<T, Stop>;

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a made-up value was refused")
    }
}

impl std::error::Error for Stop {}

impl serde::de::Error for Stop {
    fn custom<T: fmt::Display>(_: T) -> Stop {
        Stop(None)
    }

    fn duplicate_field(field: &'static str) -> Stop {
        Stop(Some(field))
    }
}

/// Deserializer of a made-up value at a slot.
struct Tracer<'t> {
    trace: &'t mut Trace,
    at: usize,
    /// Whether only the least value is made, and nothing is noted.
    least: bool,
}

macro_rules! leaves {
    ($($method:ident: $leaf:ident, $visit:ident($made_up:expr);)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            self.trace.fill(self.at, 0, |_| Node::Leaf(Leaf::$leaf))?;
            let made_up: fn((&'static str, u8)) -> _ = $made_up;
            visitor.$visit(made_up(self.trace.made_up))
        })*
    };
}

impl<'t> Tracer<'t> {
    /// Runs `f` for a type with a name, at the slot where the type was found first.
    fn named<V, R>(self, name: &'static str, f: impl FnOnce(Tracer<'_>) -> Result<R>) -> Result<R> {
        let Tracer { trace, at, least } = self;
        let key = (type_name::<V>(), name);
        let named = *trace.named.entry(key).or_insert(Named { slot: at, is_busy: false });
        let slot = named.slot;
        if slot != at && trace.slots[at].same.is_none() {
            trace.slots[at].same = Some(slot);
            trace.news();
        }
        if named.is_busy {
            return match trace.slots[slot].is_good {
                true => f(Tracer { trace, at: slot, least: true }),
                false => Err(Stop(None)),
            };
        }
        trace.named.insert(key, Named { slot, is_busy: true });
        let made = f(Tracer { trace: &mut *trace, at: slot, least });
        trace.named.insert(key, named);
        if made.is_ok() && !trace.slots[slot].is_good {
            trace.slots[slot].is_good = true;
            trace.news();
        }
        made
    }

    /// Makes the value of a slot that is a part of this one.
    fn part<R>(
        trace: &mut Trace,
        at: usize,
        least: bool,
        make: impl FnOnce(Tracer<'_>) -> Result<R>,
    ) -> Result<R> {
        match least {
            true => make(Tracer { trace, at, least }),
            false => trace.attempt(at, |trace| make(Tracer { trace, at, least })),
        }
    }

    fn tuple<'de, V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value> {
        let Tracer { trace, at, least } = self;
        let parts = match count {
            0..=TUPLE_MAX => trace.fill(at, count, |parts| Node::Tuple(parts.to_vec()))?,
            _ => trace.fill(at, 1, |element| Node::Array(count, element[0]))?.repeat(count),
        };
        visitor.visit_seq(Elements { trace, parts: parts.into_iter(), least })
    }

    fn fields<'de, V: Visitor<'de>>(
        self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let Tracer { trace, at, least } = self;
        if trace.slots[at].fields.by == Access::Order {
            return Tracer { trace, at, least }.tuple(names.len(), visitor);
        }
        trace.fill(at, 0, |_| Node::Struct(Vec::new()))?;
        trace.slots[at].fields.are_all |= names.is_empty();
        let (mut is_asked, mut again) = (false, None);
        let made = visitor.visit_map(Entries {
            trace: &mut *trace,
            at,
            names,
            least,
            next: 0,
            is_asked: &mut is_asked,
            again: &mut again,
        });
        if made.is_err() && !is_asked && !least {
            // The type takes no map.
            let slot = &mut trace.slots[at];
            (slot.node, slot.fields.by) = (None, Access::Order);
            trace.news();
        }
        if let (Err(Stop(Some(found))), Some(field)) = (&made, again)
            && let Some(Node::Struct(fields)) = &mut trace.slots[at].node
        {
            fields[field].0 = (*found).to_owned();
            trace.news();
        }
        made
    }
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Stop;

    leaves! {
        deserialize_bool: Bool, visit_bool(|(_, number)| number > 0);
        deserialize_i8: I8, visit_i8(|(_, number)| number as i8);
        deserialize_i16: I16, visit_i16(|(_, number)| number.into());
        deserialize_i32: I32, visit_i32(|(_, number)| number.into());
        deserialize_i64: I64, visit_i64(|(_, number)| number.into());
        deserialize_i128: I128, visit_i128(|(_, number)| number.into());
        deserialize_u8: U8, visit_u8(|(_, number)| number);
        deserialize_u16: U16, visit_u16(|(_, number)| number.into());
        deserialize_u32: U32, visit_u32(|(_, number)| number.into());
        deserialize_u64: U64, visit_u64(|(_, number)| number.into());
        deserialize_u128: U128, visit_u128(|(_, number)| number.into());
        deserialize_f32: F32, visit_f32(|(_, number)| number.into());
        deserialize_f64: F64, visit_f64(|(_, number)| number.into());
        deserialize_char: Char, visit_char(|_| 'a');
        deserialize_str: Str, visit_str(|(text, _)| text);
        deserialize_string: Str, visit_str(|(text, _)| text);
        deserialize_bytes: Bytes, visit_bytes(|(text, _)| text.as_bytes());
        deserialize_byte_buf: Bytes, visit_bytes(|(text, _)| text.as_bytes());
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value> {
        self.trace.is_undecided = true;
        Err(Stop(None))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.trace.was_ignored = true;
        visitor.visit_unit()
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.trace.fill(self.at, 0, |_| Node::Leaf(Leaf::Unit))?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &str, visitor: V) -> Result<V::Value> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Tracer { trace, at, least } = self;
        let content = trace.fill(at, 1, |content| Node::Option(content[0]))?[0];
        match least || trace.is_dead(content) {
            true => visitor.visit_none(),
            false => Tracer::part(trace, content, least, |content| visitor.visit_some(content)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Tracer { trace, at, least } = self;
        let mut parts = trace.fill(at, 1, |element| Node::Seq(element[0]))?;
        parts.retain(|element| !least && !trace.is_dead(*element));
        visitor.visit_seq(Elements { trace, parts: parts.into_iter(), least })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Tracer { trace, at, least } = self;
        let mut parts = trace.fill(at, 2, |entry| Node::Map(entry[0], entry[1]))?;
        if least || parts.iter().any(|part| trace.is_dead(*part)) {
            parts.clear();
        }
        visitor.visit_map(Elements { trace, parts: parts.into_iter(), least })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value> {
        self.tuple(count, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.named::<V, _>(name, |own| own.tuple(count, visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        self.named::<V, _>(name, |own| visitor.visit_newtype_struct(own))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.named::<V, _>(name, |own| own.fields(names, visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.named::<V, _>(name, |Tracer { trace, at, least }| {
            let contents = trace.fill(at, names.len(), |contents| {
                let names = names.iter().map(|name| String::from(*name));
                Node::Enum(names.zip(contents.iter().copied()).collect())
            })?;
            if trace.slots[at].is_open.is_none() {
                // Without a variant of this number, the run ends here.
                trace.slots[at].is_open = Some(false);
                trace.news();
                let is_open = &mut false;
                let made = visitor.visit_enum(Variant {
                    trace: &mut *trace,
                    number: None,
                    is_open,
                    least,
                });
                let is_open = *is_open;
                trace.slots[at].is_open = Some(is_open);
                return made;
            }
            let next = contents.iter().position(|content| !trace.is_done(*content));
            let next = next.filter(|_| !least).or(trace.slots[at].first_good);
            let number = next.ok_or(Stop(None))?;
            let content = contents[number];
            let mut is_there = false;
            let made = Tracer::part(trace, content, least, |own| {
                let number = Some((number as u32, content));
                let is_open = &mut is_there;
                visitor.visit_enum(Variant { trace: own.trace, number, is_open, least })
            });
            if !is_there && !least {
                trace.slots[content].is_absent = true;
                trace.news();
            }
            if made.is_ok() {
                trace.slots[at].first_good.get_or_insert(number);
            }
            made
        })
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Parts in their order: elements, or a key and a value.
struct Elements<'t> {
    trace: &'t mut Trace,
    parts: std::vec::IntoIter<usize>,
    least: bool,
}

impl Elements<'_> {
    fn next<'de, S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        let Some(part) = self.parts.next() else { return Ok(None) };
        Tracer::part(self.trace, part, self.least, |part| seed.deserialize(part)).map(Some)
    }
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Stop;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        self.next(seed)
    }
}

impl<'de> MapAccess<'de> for Elements<'_> {
    type Error = Stop;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        self.next(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        self.next(seed)?.ok_or(Stop(None))
    }
}

/// The fields of a struct as those of a map. Their keys are their numbers, which serde's derive understands, and
/// which show where the fields end although `names` may have further names for them.
struct Entries<'t, 'r> {
    trace: &'t mut Trace,
    at: usize,
    names: &'static [&'static str],
    least: bool,
    next: usize,
    /// Whether the type has asked for a key.
    is_asked: &'r mut bool,
    /// The field that is given twice, so that the error names it.
    again: &'r mut Option<usize>,
}

impl Entries<'_, '_> {
    fn slots(&mut self) -> &mut Vec<(String, usize)> {
        match &mut self.trace.slots[self.at].node {
            Some(Node::Struct(fields)) => fields,
            _ => unreachable!("the struct was noted before its fields"),
        }
    }

    /// Notes that there are no further fields.
    fn end(&mut self) {
        self.trace.slots[self.at].fields.are_all = true;
        let names = self.names;
        let fields = self.slots();
        if fields.len() == names.len() {
            for (field, name) in fields.iter_mut().zip(names) {
                field.0 = (*name).to_owned();
            }
        }
        self.trace.news();
    }
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Stop;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        *self.is_asked = true;
        let Fields { by, are_all } = self.trace.slots[self.at].fields;
        let slots: Vec<_> = self.slots().iter().map(|(_, slot)| *slot).collect();
        if self.again.is_none() {
            while !self.least && slots.get(self.next).is_some_and(|slot| self.trace.is_dead(*slot))
            {
                self.next += 1;
            }
        }
        let key = self.again.unwrap_or(self.next);
        if key >= slots.len() && (are_all || self.least) {
            return Ok(None);
        }
        if by == Access::Name {
            let name: StrDeserializer<'_, Stop> = self.names[key].into_deserializer();
            return seed.deserialize(name).map(Some);
        }
        let number: U64Deserializer<Stop> = (key as u64).into_deserializer();
        let found = seed.deserialize(number);
        if found.is_err() && key == slots.len() {
            if key == 0 {
                // The type knows its fields by their names only.
                self.trace.slots[self.at].fields.by = Access::Name;
                for _ in self.names {
                    let slot = self.trace.add()?;
                    self.slots().push((String::new(), slot));
                }
            }
            self.end();
        }
        found.map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        if self.again.is_some() {
            return Err(Stop(None));
        }
        let key = self.next;
        self.next += 1;
        let is_new = key == self.slots().len();
        if is_new {
            let slot = self.trace.add()?;
            self.slots().push((String::new(), slot));
            self.trace.was_ignored = false;
        }
        let slot = self.slots()[key].1;
        let made = Tracer::part(self.trace, slot, self.least, |field| seed.deserialize(field));
        let Slot { node, same, .. } = &self.trace.slots[slot];
        if is_new && node.is_none() && same.is_none() && self.trace.was_ignored {
            self.slots().pop();
            self.end();
            return made;
        }
        let is_nameless =
            self.trace.slots[self.at].fields.are_all && self.slots()[key].0.is_empty();
        if made.is_ok() && is_nameless && !self.least && !self.trace.slots[slot].is_asked {
            self.trace.slots[slot].is_asked = true;
            self.trace.steps += 1;
            *self.again = Some(key);
        }
        made
    }
}

/// A variant of an enum, by its number.
struct Variant<'t, 'r> {
    trace: &'t mut Trace,
    /// The number and the slot of the content; `None` for a number that no variant has.
    number: Option<(u32, usize)>,
    /// Whether the enum has accepted the number.
    is_open: &'r mut bool,
    least: bool,
}

impl<'de> EnumAccess<'de> for Variant<'_, '_> {
    type Error = Stop;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self)> {
        let number = self.number.map_or(u32::MAX, |(number, _)| number);
        let number: U32Deserializer<Stop> = number.into_deserializer();
        let variant = seed.deserialize(number)?;
        *self.is_open = true;
        Ok((variant, self))
    }
}

impl<'t> Variant<'t, '_> {
    fn content(self) -> Result<Tracer<'t>> {
        let (_, at) = self.number.ok_or(Stop(None))?;
        Ok(Tracer { trace: self.trace, at, least: self.least })
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, '_> {
    type Error = Stop;

    fn unit_variant(self) -> Result<()> {
        let content = self.content()?;
        content.trace.fill(content.at, 0, |_| Node::Leaf(Leaf::Unit)).map(drop)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value> {
        seed.deserialize(self.content()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value> {
        self.content()?.tuple(count, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.content()?.fields(names, visitor)
    }
}
