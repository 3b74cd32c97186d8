//! [`Shape`]: the names and types of the parts of an encoded value.
//!
//! Postcard stores a value as its parts in their order, without names or types. The shape has these, and is stored
//! once for all values of a type. A value whose shape is not the program's is read by its own shape, part by part
//! and by name, as from a format that describes itself. So a field may move, grow, leave, or come with a default,
//! and a value that does not fit is refused.
//!
//! ```text
//!  T: Deserialize ──trace──► Shape ──put──► catalogue: number ◄── first byte of each record
//!                              │                         │
//!            the same or agrees? ──yes──► postcard       ▼
//!                              └──no──► read: T's `Deserialize` asks, the stored shape answers
//! ```
//!
//! - Names are those that serde uses, of fields and variants. The names of types do not count, and a newtype is
//!   the same as its content.
//! - A part of which `Deserialize` reveals nothing is *unknown*: it agrees with any other part, and a value with
//!   such a part cannot be read by shape.

mod read;
mod show;
mod trace;

use std::collections::HashSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::durable::decode_whole;

/// The shape of a type's values; see the file's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape(
    /// The parts, which refer to each other by their places. The first one is the whole value.
    Vec<Node>,
);

/// A part of a shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Node {
    Unknown,
    Leaf(Leaf),
    Option(usize),
    Seq(usize),
    Map(usize, usize),
    Tuple(Vec<usize>),
    /// Length and element of an array.
    Array(usize, usize),
    /// Fields in the order in which they are encoded. An empty name is one that was not found out.
    Struct(Vec<(String, usize)>),
    /// Variants in the order of their numbers, with their contents.
    Enum(Vec<(String, usize)>),
}

/// A part without parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Leaf {
    Unit,
    Bool,
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    U128,
    F32,
    F64,
    Char,
    Str,
    Bytes,
}

impl Shape {
    /// Finds out the shape of a type. The user's `Deserialize` runs, on made-up values.
    ///
    /// # Errors
    ///
    /// The reason why postcard cannot decode such values.
    pub(crate) fn of<T: DeserializeOwned>() -> Result<Shape, &'static str> {
        trace::trace(|_: T| true)
    }

    /// Does the same for a type whose values are to be stored.
    ///
    /// # Errors
    ///
    /// The reason why such values would not come back.
    pub(crate) fn of_stored<T: Serialize + DeserializeOwned>() -> Result<Shape, &'static str> {
        trace::trace(|value: T| {
            let encoded = postcard::to_stdvec(&value);
            encoded.is_ok_and(|encoded| decode_whole::<T>(&encoded).is_ok())
        })
    }

    /// Returns the encoded shape.
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Numbers and texts in a vector are always encoded.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Decodes a shape; `None` if the bytes are none.
    pub(crate) fn parse(encoded: &[u8]) -> Option<Shape> {
        let shape: Shape = postcard::from_bytes(encoded).ok()?;
        let is_whole = !shape.0.is_empty()
            && shape.0.iter().all(|node| node.parts().iter().all(|part| *part < shape.0.len()));
        is_whole.then_some(shape)
    }

    /// Whether values of the two shapes are encoded in the same way, as far as both are known.
    pub(crate) fn agrees(&self, other: &Shape) -> bool {
        let (mut seen, mut pairs) = (HashSet::new(), vec![(0, 0)]);
        while let Some((own, others)) = pairs.pop() {
            // A part that contains itself comes back to the same pair.
            if !seen.insert((own, others)) {
                continue;
            }
            let (one, other) = (&self.0[own], &other.0[others]);
            if !one.is_like(other) {
                return false;
            }
            if *one != Node::Unknown && *other != Node::Unknown {
                pairs.extend(one.parts().into_iter().zip(other.parts()));
            }
        }
        true
    }

    /// Decodes a value of this shape as a `T`, part by part and by name. All bytes must be used.
    ///
    /// # Errors
    ///
    /// The reason why the value is no `T`, with the name of the part.
    pub(crate) fn read<T: DeserializeOwned>(&self, encoded: &[u8]) -> Result<T, String> {
        read::read(self, encoded)
    }

    /// Returns the text of a value of this shape for people, cut at about `bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// The reason why the bytes are no such value.
    pub(crate) fn show(&self, encoded: &[u8], bytes_max: usize) -> Result<String, String> {
        show::show(self, encoded, bytes_max)
    }
}

impl Node {
    fn parts(&self) -> Vec<usize> {
        match self {
            Node::Unknown | Node::Leaf(_) => Vec::new(),
            Node::Option(part) | Node::Seq(part) | Node::Array(_, part) => vec![*part],
            Node::Map(key, value) => vec![*key, *value],
            Node::Tuple(parts) => parts.clone(),
            Node::Struct(parts) | Node::Enum(parts) => {
                parts.iter().map(|(_, part)| *part).collect()
            }
        }
    }

    /// Whether the two are the same, apart from their parts.
    fn is_like(&self, other: &Node) -> bool {
        let same = |(one, other): (&(String, _), &(String, _))| {
            one.0 == other.0 || one.0.is_empty() || other.0.is_empty()
        };
        match (self, other) {
            (Node::Unknown, _) | (_, Node::Unknown) => true,
            (Node::Option(_), Node::Option(_))
            | (Node::Seq(_), Node::Seq(_))
            | (Node::Map(..), Node::Map(..)) => true,
            (Node::Leaf(one), Node::Leaf(other)) => one == other,
            (Node::Array(one, _), Node::Array(other, _)) => one == other,
            (Node::Tuple(one), Node::Tuple(other)) => one.len() == other.len(),
            (Node::Struct(one), Node::Struct(other)) | (Node::Enum(one), Node::Enum(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(same)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};
    use std::fmt::Debug;
    use std::net::IpAddr;
    use std::time::{Duration, SystemTime};

    use super::*;

    /// Checks that the values are read by the shape of their type.
    fn reads<T: Serialize + DeserializeOwned + Debug>(values: &[T]) -> Shape {
        let shape = Shape::of_stored::<T>().unwrap();
        assert_eq!(Shape::parse(&shape.encode()).as_ref(), Some(&shape));
        assert!(!shape.0.contains(&Node::Unknown), "{shape:?}");
        for value in values {
            let read = shape.read::<T>(&postcard::to_stdvec(value).unwrap());
            assert_eq!(format!("{read:?}"), format!("{:?}", Ok::<_, String>(value)));
        }
        shape
    }

    fn change<Old: Serialize + DeserializeOwned, New: DeserializeOwned>(
        old: &Old,
    ) -> Result<New, String> {
        let (stored, own) = (Shape::of::<Old>()?, Shape::of::<New>()?);
        assert!(!stored.agrees(&own));
        stored.read(&postcard::to_stdvec(old).unwrap())
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Pair<T>(T, T);

    #[derive(Debug, Serialize, Deserialize)]
    enum Term {
        Sum(Box<Term>, Box<Term>),
        Minus(Box<Term>),
        Call { name: String, arguments: Vec<Term> },
        Number(i64),
        Nothing,
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Tree(Vec<Tree>);

    #[derive(Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Chain {
        #[serde(alias = "first")]
        value: Pair<u8>,
        next: Option<Box<Chain>>,
        #[serde(rename = "name", alias = "label", alias = "zone")]
        text: Pair<String>,
        #[serde(skip)]
        _cache: u64,
        term: Term,
    }

    #[test]
    fn every_type_that_postcard_reads_is_read_by_its_shape() {
        let sum = |one, other| Term::Sum(Box::new(one), Box::new(other));
        let call = |arguments| Term::Call { name: "f".into(), arguments };
        reads(&[sum(
            Term::Number(-3),
            call(vec![Term::Nothing, Term::Minus(Box::new(Term::Number(9)))]),
        )]);
        reads(&[Tree(vec![Tree(vec![]), Tree(vec![Tree(vec![])])])]);
        let chain = |next| Chain {
            value: Pair(1, 2),
            next,
            text: Pair("a".into(), String::new()),
            _cache: 0,
            term: sum(Term::Nothing, Term::Nothing),
        };
        let shape = reads(&[chain(Some(Box::new(chain(None))))]);
        let Node::Struct(fields) = &shape.0[0] else { panic!("{shape:?}") };
        let names: Vec<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["value", "next", "name", "term"]);

        reads(&[(1u8, -2i8, 3u16, -4i16, 5u32, -6i32, 7u64, -8i64, u128::MAX, i128::MIN)]);
        reads(&[(true, 'ä', "text".to_owned(), 1.5f32, -2.5f64, (), [7u8; 20], [0u16; 0])]);
        reads(&[BTreeMap::from([("a".to_owned(), vec![Some(1i16), None])])]);
        reads(&[HashMap::from([(Some(3u64), Ok::<u8, String>(4))])]);
        reads(&[HashMap::from([(None::<u64>, Err::<u8, _>("no".to_owned()))])]);
        reads::<IpAddr>(&["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]);
        reads(&[(
            Duration::from_millis(1500),
            SystemTime::UNIX_EPOCH,
            std::num::NonZero::<u32>::MAX,
        )]);
    }

    /// A text that no made-up one equals.
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(try_from = "String", into = "String")]
    #[derive(Clone)]
    struct Password(String);

    impl TryFrom<String> for Password {
        type Error = String;
        fn try_from(text: String) -> Result<Self, String> {
            if text.len() == 11 { Ok(Password(text)) } else { Err("too weak".into()) }
        }
    }

    impl From<Password> for String {
        fn from(Password(text): Password) -> String {
            text
        }
    }

    #[test]
    fn a_type_that_refuses_all_made_up_values_hides_little_of_the_others() {
        #[derive(Debug, Serialize, Deserialize)]
        enum Secret {
            Weak { password: Password, since: u64 },
            None,
        }
        #[derive(Debug, Serialize, Deserialize)]
        struct User {
            password: Password,
            secrets: Vec<Secret>,
            former: Option<(u8, Password)>,
            age: u8,
        }
        let password = || Password("hunter2-abc".into());
        let secrets = vec![Secret::Weak { password: password(), since: 1 }, Secret::None];
        reads(&[User { password: password(), secrets, former: Some((3, password())), age: 4 }]);
        // What follows in a tuple is not known: it agrees with anything, and is not read by shape.
        let hidden = Shape::of::<(Password, u64)>().unwrap();
        assert!(hidden.agrees(&Shape::of::<(String, u8)>().unwrap()));
        assert!(!hidden.agrees(&Shape::of::<(u8, u8)>().unwrap()));
        let encoded = postcard::to_stdvec(&(password(), 1u64)).unwrap();
        assert!(hidden.read::<(String, u64)>(&encoded).unwrap_err().contains("not known"));
    }

    #[test]
    fn a_panic_ends_the_search_for_the_shape() {
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(try_from = "u8")]
        struct Bomb;
        impl TryFrom<u8> for Bomb {
            type Error = String;
            fn try_from(_: u8) -> Result<Self, String> {
                panic!("on purpose")
            }
        }
        let shape = Shape::of::<(u16, Bomb, u32)>().unwrap();
        assert_eq!(shape.0[0], Node::Tuple(vec![1, 2, 3]));
        assert_eq!((&shape.0[2], &shape.0[3]), (&Node::Leaf(Leaf::U8), &Node::Unknown));
    }

    #[test]
    fn variants_and_nested_fields_are_found_by_their_names() {
        #[derive(Debug, Serialize, Deserialize)]
        enum Old {
            Open,
            Paid(u8),
            Sent { at: u8, to: String },
            Lost,
        }
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        enum New {
            #[serde(alias = "Sent")]
            Shipped {
                to: String,
                #[serde(default)]
                by: Option<String>,
                at: u64,
            },
            Paid(i32),
            Open,
        }
        let old = vec![Old::Sent { at: 3, to: "ann".into() }, Old::Open, Old::Paid(200)];
        let new =
            vec![New::Shipped { to: "ann".into(), by: None, at: 3 }, New::Open, New::Paid(200)];
        assert_eq!(change::<_, Vec<New>>(&old), Ok(new));
        assert!(change::<_, New>(&Old::Lost).unwrap_err().contains("`Lost`"));
    }

    #[test]
    fn a_value_is_read_as_what_it_says_or_refused() {
        assert_eq!(change::<u64, i64>(&7), Ok(7));
        assert!(change::<u64, i64>(&u64::MAX).is_err());
        assert!(change::<u64, u8>(&256).is_err());
        assert_eq!(change::<u8, Option<u32>>(&7), Ok(Some(7)));
        assert!(change::<Option<u8>, u8>(&Some(7)).is_err());
        assert!(change::<u64, String>(&7).is_err());
        assert_eq!(change::<[u8; 20], Vec<u8>>(&[7; 20]), Ok(vec![7; 20]));
        assert!(change::<Vec<u8>, [u8; 2]>(&vec![1, 2, 3]).is_err());
        assert_eq!(change::<Vec<u8>, [u8; 2]>(&vec![1, 2]), Ok([1, 2]));

        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Point {
            x: u8,
            y: u8,
        }
        // A tuple has positions only.
        assert_eq!(change::<_, (u8, u8)>(&Point { x: 1, y: 2 }), Ok((1, 2)));
        assert_eq!(change::<_, Point>(&(1u8, 2u8)), Ok(Point { x: 1, y: 2 }));
        assert!(change::<_, (u8, u8, u8)>(&Point { x: 1, y: 2 }).is_err());
        assert!(change::<_, Point>(&(1u8, 2u8, 3u8)).is_err());
        assert!(
            change::<_, Point>(&BTreeMap::from([("x".to_owned(), 1u8), ("y".into(), 2)])).is_err()
        );
    }

    #[test]
    fn types_whose_values_would_not_come_back_are_refused() {
        #[derive(Serialize, Deserialize)]
        struct Skips {
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            names: Vec<String>,
            age: u8,
        }
        #[derive(Serialize, Deserialize)]
        struct Outer(Option<u8>, Vec<Skips>, Skips);
        #[derive(Serialize, Deserialize)]
        #[serde(tag = "kind")]
        enum Tagged {
            A { x: u8 },
        }
        #[derive(Serialize, Deserialize)]
        #[serde(untagged)]
        enum Untagged {
            A(u8),
        }
        #[derive(Serialize, Deserialize)]
        struct Flat {
            #[serde(flatten)]
            all: BTreeMap<String, u8>,
        }
        let reason = Shape::of_stored::<Outer>().unwrap_err();
        assert!(reason.contains("`skip_serializing_if`"), "{reason}");
        for reason in [
            Shape::of_stored::<Option<Tagged>>(),
            Shape::of_stored::<Vec<Untagged>>(),
            Shape::of_stored::<(u8, Flat)>(),
        ] {
            assert!(reason.unwrap_err().contains("`flatten`"));
        }
    }

    #[test]
    fn a_damaged_shape_is_none() {
        for shape in [vec![], vec![Node::Seq(1)], vec![Node::Struct(vec![("a".into(), 7)])]] {
            assert_eq!(Shape::parse(&Shape(shape).encode()), None);
        }
        assert_eq!(Shape::parse(&[0xff]), None);
    }
}
