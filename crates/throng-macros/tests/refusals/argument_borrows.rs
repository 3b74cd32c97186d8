//! A message outlives the borrow of its sender.

use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[message]
    fn rename(&mut self, _name: &str) {}

    #[message]
    fn tag(&mut self, _tags: Vec<std::borrow::Cow<'_, str>>) {}
}

fn main() {}
