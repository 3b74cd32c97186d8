//! The count of the messages that a process drops as it exits.

use super::Token;
use crate::cell::extension::Extension;
use crate::exit::ExitReason;
use crate::mailbox::dead_letters::{DeadLetter, DropReason};
use crate::scheduler::watchdog::TurnTitle;
use crate::turn::async_process;
use std::mem;
use std::ptr;

/// Messages that a process has dropped because it exits. They are counted when this is dropped, so also
/// if a panic cuts the exit short.
pub(crate) struct Losses<'a> {
    token: &'a Token,
    reason: DropReason,
    /// Title and number of the messages that were dropped last and are not counted yet.
    last: Option<(&'static TurnTitle, u64)>,
}

impl<'a> Losses<'a> {
    pub(crate) fn new(token: &'a Token, reason: &ExitReason) -> Losses<'a> {
        Losses { token, reason: DropReason::of_exit(reason), last: None }
    }

    pub(crate) fn add(&mut self, title: &'static TurnTitle, messages: u64) {
        match &mut self.last {
            Some((last, number)) if ptr::eq(*last, title) => *number += messages,
            _ => {
                self.count();
                self.last = Some((title, messages));
            }
        }
    }

    fn count(&mut self) {
        if let Some((title, messages)) = self.last.take() {
            let letter = DeadLetter::of(title, self.token.pid(), self.reason, messages);
            self.token.class().runtime.drops().count(letter);
        }
    }
}

impl Drop for Losses<'_> {
    fn drop(&mut self) {
        self.count();
    }
}

impl Token {
    /// Counts the messages that an async process has kept, which are dropped with its state.
    pub(super) fn count_kept(&self, reason: &ExitReason) {
        let take = |own: &mut Extension| Some(mem::take(&mut own.rare_if_any()?.kept));
        let Some(kept) = self.if_extension(take).flatten() else { return };
        let process = self.class().name;
        self.class().runtime.drops().count(DeadLetter {
            to: self.pid(),
            process,
            message: async_process::message_of(process),
            reason: DropReason::of_exit(reason),
            messages: kept.without(0).messages,
        });
    }
}
