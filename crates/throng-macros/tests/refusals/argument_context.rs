//! The context is passed once and by reference.

use throng::prelude::*;

struct Account;

#[process]
impl Account {
    #[message]
    fn deposit(&mut self, _cx: &mut Context<Self>, _amount: u64, _again: &mut Context<Self>) {}

    #[message]
    fn withdraw(&mut self, _cx: Context<Self>) {}
}

fn main() {}
