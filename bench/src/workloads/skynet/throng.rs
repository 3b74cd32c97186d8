//! `skynet` with throng: a process starts its children in `started`, and each child sends its sum to
//! its parent.

use std::io;
use std::ops::Range;

use throng::{Address, Context, ExitReason, Handle, Message, Process};

use super::{ROOT, children, measure, processes};
use crate::outcome::Outcome;
use crate::runtimes;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings) -> io::Result<Outcome> {
    runtimes::throng::drive(settings, processes(settings.count), |runtime, settings| {
        measure(settings, async move |leaves| {
            ROOT.arm(1);
            runtimes::throng::start(&runtime, Node { parent: None, leaves, missing: 0, sum: 0 });
            ROOT.complete().await;
            (ROOT.count() == 1).then(|| ROOT.sum())
        })
    })
}

struct Node {
    /// The root has no parent.
    parent: Option<Address<Node>>,
    leaves: Range<u64>,
    /// Children that have not reported.
    missing: usize,
    sum: u64,
}

impl Node {
    fn report(&self, cx: &mut Context<Self>) {
        match self.parent {
            // A report without a receiver is missing in the sum.
            Some(parent) => drop(parent.send(Sum(self.sum))),
            None => ROOT.add(self.sum),
        }
        cx.stop(ExitReason::Normal);
    }
}

impl Process for Node {
    async fn started(&mut self, cx: &mut Context<Self>) {
        if self.leaves.end - self.leaves.start == 1 {
            self.sum = self.leaves.start;
            return self.report(cx);
        }
        let children = children(self.leaves.clone());
        self.missing = children.len();
        for leaves in children {
            let parent = Some(cx.address());
            runtimes::throng::start(cx.runtime(), Node { parent, leaves, missing: 0, sum: 0 });
        }
    }
}

struct Sum(u64);

impl Message for Sum {
    type Reply = ();
}

impl Handle<Sum> for Node {
    async fn handle(&mut self, Sum(sum): Sum, cx: &mut Context<Self>) {
        self.sum += sum;
        self.missing -= 1;
        if self.missing == 0 {
            self.report(cx);
        }
    }
}
