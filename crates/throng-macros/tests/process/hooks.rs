//! Hooks, and processes that implement `Process` themselves.

use crate::runtime;
use std::sync::{Arc, Mutex};
use throng::prelude::*;

type Log = Arc<Mutex<Vec<String>>>;

struct Session {
    log: Log,
}

impl Session {
    fn write(&self, text: impl Into<String>) {
        self.log.lock().unwrap().push(text.into());
    }
}

#[process]
impl Session {
    #[hook]
    async fn started(&mut self, cx: &mut Context<Self>) {
        tokio::task::yield_now().await;
        self.write(format!("started {}", cx.address().is_alive()));
    }

    #[hook]
    fn stopping(&self, reason: &ExitReason) {
        self.write(format!("stopping: {reason}"));
    }

    #[hook]
    fn exit(&mut self, exit: Exit, cx: &mut Context<Self>) {
        assert_ne!(exit.pid, Some(cx.pid()));
        self.write(format!("exit: {}", exit.reason));
    }

    #[hook]
    async fn down(&mut self, Down { reason, .. }: Down) {
        self.write(format!("down: {reason}"));
    }

    #[message]
    fn watch(&mut self, other: Pid, cx: &mut Context<Self>) {
        cx.trap_exits(true);
        cx.link(other);
        cx.monitor(other);
    }

    #[message]
    fn greet(&self) {
        self.write("hello");
    }

    #[message(send)]
    fn hang_up(&self, cx: &mut Context<Self>) {
        cx.stop(ExitReason::other("hung up"));
    }
}

#[test]
fn hooks_run_before_the_first_message_and_after_the_last() {
    let runtime = runtime();
    let log = Log::default();
    let session = runtime.spawn(Session { log: log.clone() }).unwrap();
    runtime.block_on(async |_| session.greet().await).unwrap();
    session.hang_up().unwrap();
    runtime.shutdown(std::time::Duration::from_secs(60));
    assert_eq!(*log.lock().unwrap(), ["started true", "hello", "stopping: hung up"]);
}

#[test]
fn hooks_receive_the_ends_of_other_processes() {
    let runtime = runtime();
    let log = Log::default();
    let session = runtime.spawn(Session { log: log.clone() }).unwrap();
    let other = runtime.spawn(Session { log: Log::default() }).unwrap();
    runtime
        .block_on(async |_| {
            session.watch(other.pid()).await?;
            other.hang_up()?;
            while log.lock().unwrap().len() < 3 {
                tokio::task::yield_now().await;
            }
            Ok::<_, throng::Error>(())
        })
        .unwrap();
    let mut log = log.lock().unwrap().split_off(1);
    log.sort();
    assert_eq!(log, ["down: hung up", "exit: hung up"]);
}

/// Hooks with their arguments in the other order, and hooks with all arguments.
struct Backwards {
    log: Log,
}

#[throng::process]
impl Backwards {
    #[throng::hook]
    async fn stopping(&mut self, cx: &mut Context<Self>, reason: &ExitReason) {
        let runs = cx.runtime().process_count();
        self.log.lock().unwrap().push(format!("{reason} {runs}"));
    }
}

#[test]
fn a_hooks_arguments_may_stand_in_any_order() {
    let runtime = runtime();
    let log = Log::default();
    let process = runtime.spawn(Backwards { log: log.clone() }).unwrap();
    assert!(process.stop());
    runtime.shutdown(std::time::Duration::from_secs(60));
    assert_eq!(*log.lock().unwrap(), [format!("{} 1", ExitReason::Normal)]);
}

struct Manual {
    started: bool,
}

impl Process for Manual {
    async fn started(&mut self, _: &mut Context<Self>) {
        self.started = true;
    }
}

#[process(manual)]
impl Manual {
    #[message]
    fn has_started(&self) -> bool {
        self.started
    }
}

/// A second block needs another name for its client.
#[process(manual, client = ManualReset, crate = ::throng)]
impl Manual {
    #[message(send)]
    fn reset(&mut self) {
        self.started = false;
    }
}

#[test]
fn a_process_written_by_hand_may_have_blocks_of_messages() {
    let runtime = runtime();
    let process = runtime.spawn(Manual { started: false }).unwrap();
    runtime
        .block_on(async |_| {
            assert!(process.has_started().await?);
            process.reset()?;
            assert!(!process.has_started().await?);
            Ok::<_, throng::Error>(())
        })
        .unwrap();
}
