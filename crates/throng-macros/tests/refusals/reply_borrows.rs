//! A reply leaves the process.

use throng::prelude::*;

struct Account {
    owner: String,
}

#[process]
impl Account {
    #[message]
    fn owner(&self) -> &str {
        &self.owner
    }

    #[message]
    fn owners(&self) -> impl Iterator<Item = String> {
        std::iter::once(self.owner.clone())
    }
}

fn main() {}
