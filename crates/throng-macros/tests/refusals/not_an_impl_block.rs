//! `#[process]` on other items than an impl block.

use throng::prelude::*;

#[process]
struct Account;

struct Session;

#[process]
impl Process for Session {}

struct Guest<'a>(&'a str);

#[process]
impl<'a> Guest<'a> {
    #[message]
    fn leave(&mut self) {}
}

fn main() {}
