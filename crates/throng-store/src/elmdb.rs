//! Cursors, children of a path and the reader, in the shape that elmdb gives them.
//!
#![doc = include_str!("elmdb.md")]

mod children;
mod cursor;
mod reader;

pub use children::{Child, Children, Matches};
pub use cursor::Cursor;
pub use reader::Reader;

#[cfg(test)]
mod tests {
    /// The page's program runs as a documentation test, so every function it calls exists.
    #[test]
    fn the_program_on_the_page_for_elmdb_calls_every_function_the_page_promises() {
        let page = include_str!("elmdb.md");
        let (tables, program) = page.split_once("```rust").unwrap();
        let mut promised = 0;
        for row in tables.lines().filter(|line| line.starts_with('|')) {
            let here = row.split('|').nth(2).unwrap();
            for link in here.split("](crate::").skip(1) {
                let path = link.split(')').next().unwrap();
                let name = path.rsplit("::").next().unwrap();
                // Types begin with a capital and are only linked; functions are called.
                if name.starts_with(char::is_lowercase) {
                    assert!(
                        program.contains(&format!("{name}("))
                            || program.contains(&format!("{name}::<")),
                        "{path} is not called"
                    );
                    promised += 1;
                }
            }
        }
        assert!(promised > 40, "{promised}");
    }
}
