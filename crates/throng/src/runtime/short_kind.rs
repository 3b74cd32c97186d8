//! Names of types as people read them.

/// Returns the name of a type without paths, also in its type arguments, and without closures: `Feeder<Connection>` for
/// `app::Feeder<app::socket::Connection, app::socket::open::{{closure}}>`.
///
/// ```
/// assert_eq!(throng::short_kind("app::Shard<app::Room, alloc::vec::Vec<u8>>"), "Shard<Room, Vec<u8>>");
/// ```
pub fn short_kind(kind: &str) -> String {
    let mut short = String::new();
    // Start of the path under way, and the starts of the paths in whose arguments it lies.
    let (mut path, mut outer) = (0, Vec::new());
    let mut chars = kind.chars().peekable();
    while let Some(c) = chars.next() {
        if c == ':' && chars.next_if_eq(&':').is_some() {
            short.truncate(path);
            continue;
        }
        let is_arrow = c == '>' && short.ends_with('-');
        short.push(c);
        match c {
            '<' | '(' | '[' => {
                outer.push(path);
                path = short.len();
            }
            // The path goes on behind its arguments.
            '>' | ')' | ']' if !is_arrow => path = outer.pop().unwrap_or(0),
            c if c.is_alphanumeric() || "_{}#".contains(c) => {}
            _ => path = short.len(),
        }
    }
    for (closure, rest) in [
        (", {{closure}}", ""),
        ("{{closure}}, ", ""),
        ("<{{closure}}>", ""),
        ("{{closure}}", "closure"),
    ] {
        short = short.replace(closure, rest);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_lose_their_paths_and_closures_and_nothing_else() {
        for (kind, short) in [
            ("social::user::User", "User"),
            ("u64", "u64"),
            ("a::Shard<b::Room, alloc::vec::Vec<u8>>", "Shard<Room, Vec<u8>>"),
            ("a::Feeder<b::Connection, b::open<c::T>::{{closure}}>", "Feeder<Connection>"),
            ("a::Map<a::f::{{closure}}, b::Key>", "Map<Key>"),
            ("a::Run<a::f::{{closure}}>", "Run"),
            ("a::f::{{closure}}", "closure"),
            ("a::Outer<b::T>::Inner", "Inner"),
            ("<a::T as b::Trait<c::U>>::Out", "Out"),
            ("a::Job<fn(b::X) -> c::Y, 8>", "Job<fn(X) -> Y, 8>"),
            ("(a::X, [b::Y; 3], &dyn c::Z + core::marker::Send)", "(X, [Y; 3], &dyn Z + Send)"),
            ("a::É<b::ß>", "É<ß>"),
            // No name of a type, but a name may come from anywhere.
            (">)::<::", "<"),
        ] {
            assert_eq!(short_kind(kind), short);
        }
    }
}
