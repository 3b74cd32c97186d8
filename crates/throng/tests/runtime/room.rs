//! Room in a full mailbox: the sends that wait for it, and the messages that need none.

use crate::{Actor, bounded_by, eventually, poll_once, runtime};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use throng::prelude::*;
use throng::{ChildSpec, GroupEvent, MailboxBound, Overflow, Supervisor};
use tokio::sync::Notify;

/// Records the messages it receives. A [`Hold`] keeps it in a turn until its gate opens.
#[derive(Default)]
struct Desk {
    heard: Arc<Mutex<Vec<String>>>,
    gate: Arc<Notify>,
    entered: Arc<Notify>,
}
#[process]
impl Desk {
    #[message(send)]
    async fn hold(&mut self) {
        self.entered.notify_one();
        self.gate.notified().await;
    }
    #[message(send, derive(Clone, PartialEq, Debug))]
    fn note(&mut self, text: &'static str) {
        self.hear(text);
    }
    #[message(derive(Debug))]
    fn count(&mut self, reply: ReplyTo<usize>) {
        let count = self.heard.lock().unwrap().len();
        let _ = reply.send(count);
    }
    /// Starts a pipe to the desk whose result comes when its gate opens.
    #[message]
    async fn start_pipe(&mut self, done: Arc<Notify>, cx: &mut Context<Self>) -> Pid {
        let pipe = cx.pipe(async move {
            done.notified().await;
            Note { text: "piped" }
        });
        pipe.expect("there is room for a process")
    }
}

impl Desk {
    fn hear(&self, what: impl Into<String>) {
        self.heard.lock().unwrap().push(what.into());
    }
}

impl Handle<GroupEvent<Address<Actor>>> for Desk {
    async fn handle(&mut self, event: GroupEvent<Address<Actor>>, _: &mut Context<Self>) {
        self.hear(format!("{:?}", event.change));
    }
}

/// A desk in the turn of a [`Hold`], its mailbox full.
struct Full {
    desk: Address<Desk>,
    heard: Arc<Mutex<Vec<String>>>,
    gate: Arc<Notify>,
}

impl Full {
    /// Spawns the desk, runs `prepare`, begins the long turn, and fills the mailbox up to its bound, or the budget of
    /// all mailboxes if there is none.
    async fn spawn(
        runtime: &RuntimeHandle,
        overflow: impl Into<Option<Overflow>>,
        prepare: impl AsyncFnOnce(Address<Desk>),
    ) -> Full {
        let desk = Desk::default();
        let (heard, gate, entered) = (desk.heard.clone(), desk.gate.clone(), desk.entered.clone());
        let bound = overflow.into().map(|overflow| MailboxBound::new(1, overflow));
        let desk = bounded_by(runtime, bound).spawn(desk).unwrap();
        prepare(desk).await;
        desk.hold().unwrap();
        entered.notified().await;
        desk.note("first").unwrap();
        while bound.is_none() && desk.note("more").is_ok() {}
        Full { desk, heard, gate }
    }

    /// Opens the gate, stops the desk, and returns the messages it has handled.
    async fn read(self) -> Vec<String> {
        self.gate.notify_one();
        self.desk.stop();
        self.desk.pid().exited().await;
        self.heard.lock().unwrap().clone()
    }
}

#[test]
fn a_piped_result_needs_no_room() {
    runtime().block_on(async |runtime| {
        let done = Arc::new(Notify::new());
        let mut pipe = None;
        let full = Full::spawn(runtime, Overflow::Reject, async |desk| {
            pipe = Some(desk.start_pipe(done.clone()).await.unwrap());
        });
        let full = full.await;
        assert!(matches!(full.desk.note("second"), Err(SendError::Overloaded(_))));
        done.notify_one();
        pipe.unwrap().exited().await;
        assert_eq!(full.read().await, ["first", "piped"]);
    });
}

#[test]
fn a_piped_result_does_not_wait_for_the_budget_of_all_mailboxes() {
    let runtime = Runtime::builder().workers(2).mailbox_budget(16 * 1024).start().unwrap();
    runtime.block_on(async |runtime| {
        let done = Arc::new(Notify::new());
        let mut pipe = None;
        let full = Full::spawn(runtime, None, async |desk| {
            pipe = Some(desk.start_pipe(done.clone()).await.unwrap());
        });
        let full = full.await;
        done.notify_one();
        pipe.unwrap().exited().await;
        assert_eq!(full.read().await.last().map(String::as_str), Some("piped"));
    });
}

#[test]
fn a_group_event_needs_no_room() {
    runtime().block_on(async |runtime| {
        let group = runtime.group::<Address<Actor>>("visitors");
        let full = Full::spawn(runtime, Overflow::Reject, async |desk| {
            group.monitor(desk);
        });
        let full = full.await;
        let visitor = runtime.spawn(Actor).unwrap();
        assert!(group.join(visitor));
        assert!(group.leave(visitor));
        assert_eq!(full.read().await, ["first", "Joined", "Left"]);
    });
}

#[test]
fn a_child_is_started_again_although_the_budget_of_all_mailboxes_is_used_up() {
    /// A process whose first turn its supervisor waits for.
    struct Waited;
    impl Process for Waited {
        async fn started(&mut self, _: &mut Context<Self>) {}
    }
    let runtime = Runtime::builder().workers(2).mailbox_budget(16 * 1024).start().unwrap();
    runtime.block_on(async |runtime| {
        let child = ChildSpec::new(|| Waited);
        let handle = child.handle();
        let supervisor = Supervisor::one_for_one().child("child", child);
        let supervisor = supervisor.start_async(runtime).await.unwrap();
        let first = handle.address().unwrap();

        let full = Full::spawn(runtime, None, async |_| {}).await;
        first.kill();
        eventually(|| handle.address().is_some_and(|second| second != first)).await;
        assert!(matches!(full.desk.note("more"), Err(SendError::Overloaded(_))));
        full.gate.notify_one();
        let count = loop {
            match supervisor.count_children().await {
                Ok(count) => break count,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        assert_eq!(count, 1);
    });
}

#[test]
fn a_question_waits_for_room_within_its_deadline_and_is_then_not_enqueued() {
    runtime().block_on(async |runtime| {
        let full = Full::spawn(runtime, Overflow::Wait, async |_| {}).await;
        let count = |reply| Count { reply };
        let hasty = full.desk.ask(count).within(Duration::from_millis(5));
        assert!(matches!(hasty.await, Err(CallError::TimedOut { enqueued: false })));
        let patient = tokio::spawn(full.desk.ask(count).within(Duration::from_secs(60)));
        let recipient = full.desk.recipient::<Count>();
        let other = tokio::spawn(recipient.ask(count).within(Duration::from_secs(60)));
        tokio::task::yield_now().await;
        full.gate.notify_one();
        assert_eq!(patient.await.unwrap().unwrap(), 1);
        assert_eq!(other.await.unwrap().unwrap(), 1);
        assert_eq!(full.read().await, ["first"]);
    });
}

#[test]
fn a_waiting_question_comes_back_when_the_process_exits() {
    runtime().block_on(async |runtime| {
        let full = Full::spawn(runtime, Overflow::Wait, async |_| {}).await;
        let mut lined = Box::pin(full.desk.ask(|reply| Count { reply }));
        assert!(poll_once(&mut lined).is_pending());
        full.desk.kill();
        let Err(CallError::NoProcess(Count { reply })) = lined.await else {
            panic!("the question was not handed back");
        };
        assert!(!reply.is_awaited());
    });
}

#[test]
fn a_question_without_room_comes_back_if_the_bound_rejects_or_drops() {
    runtime().block_on(async |runtime| {
        for overflow in [Overflow::Reject, Overflow::DropNewest] {
            let full = Full::spawn(runtime, overflow, async |_| {}).await;
            let asked = full.desk.ask(|reply| Count { reply }).await;
            assert!(matches!(asked, Err(CallError::Overloaded(Count { .. }))), "{overflow:?}");
            assert_eq!(full.read().await, ["first"]);
        }
    });
}

#[test]
fn a_recipient_delivers_when_there_is_room() {
    runtime().block_on(async |runtime| {
        let full = Full::spawn(runtime, Overflow::Wait, async |_| {}).await;
        let recipient = full.desk.recipient::<Note>();
        assert!(matches!(
            recipient.send(Note { text: "no" }),
            Err(SendError::Overloaded(Note { text: "no" }))
        ));
        let mut delivery = Box::pin(recipient.deliver(Note { text: "second" }));
        assert!(poll_once(&mut delivery).is_pending());
        full.gate.notify_one();
        delivery.await.unwrap();
        assert_eq!(full.read().await, ["first", "second"]);
        let gone = recipient.deliver(Note { text: "third" }).await;
        assert!(matches!(gone, Err(SendError::NoProcess(Note { text: "third" }))));
    });
}

#[test]
fn a_childs_handle_delivers_asks_and_hands_back_when_no_incarnation_runs() {
    runtime().block_on(async |runtime| {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let child = ChildSpec::new({
            let heard = heard.clone();
            move || Desk { heard: heard.clone(), ..Desk::default() }
        });
        let handle = child.handle();
        let early = handle.ask(|reply| Count { reply }).await;
        assert!(matches!(early, Err(CallError::NoProcess(Count { .. }))));
        let early = handle.deliver(Note { text: "early" }).await;
        assert!(matches!(early, Err(SendError::NoProcess(Note { text: "early" }))));
        Supervisor::one_for_one().child("desk", child).start_async(runtime).await.unwrap();
        handle.deliver(Note { text: "now" }).await.unwrap();
        assert_eq!(handle.ask(|reply| Count { reply }).await.unwrap(), 1);
    });
}
