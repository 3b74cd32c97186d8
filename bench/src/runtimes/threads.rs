//! Threads of the operating system, as `std::thread::spawn` starts them by default; a process is a thread that owns the
//! receiver of an unbounded channel of `std::sync::mpsc`, and ends when its last sender is dropped. The system schedules
//! the threads on all cores.
//!
//! The driver is the first thread of the program, and blocks in its calls as every thread does; the reply to a call comes
//! by a channel with one place. The driver awaits counts in `block_on` of a tokio runtime, whose timers limit these waits.
//! Other threads use this runtime only where the workload has them await something.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;

use ::tokio::runtime::{Builder, Handle};

use super::{AnyWork, Measured, Work};
use crate::host::{Actor, ActorContext, ActorHost, Host, Next, Pause, Receiver, Service, Timed};
use crate::settings::Settings;

#[derive(Clone)]
pub(crate) struct Threads {
    timers: Handle,
}

pub(crate) fn drive<F: Work>(
    settings: &Settings,
    work: impl FnOnce(Threads, Settings) -> F,
) -> Measured {
    let timers = Builder::new_current_thread().enable_time().build()?;
    let host = Threads { timers: timers.handle().clone() };
    let work: AnyWork = Box::pin(work(host, settings.clone()));
    timers.block_on(work)
}

pub(crate) struct Request {
    value: u64,
    reply: SyncSender<u64>,
}

impl Host for Threads {
    type Address<R: Receiver> = Sender<R::Message>;
    type ServiceAddress<S: Service> = Sender<Request>;
    type TimedAddress<T: Timed> = Sender<T::Message>;

    async fn start<R: Receiver>(&self, mut receiver: R) -> io::Result<Sender<R::Message>> {
        let (mailbox, inbox) = channel();
        let timers = self.timers.clone();
        thread::Builder::new().spawn(move || {
            for message in inbox {
                match receiver.receive(message) {
                    Next::Message => {}
                    Next::Wait(pause) => timers.block_on(pause.wait()),
                    Next::Stop => return,
                }
            }
        })?;
        Ok(mailbox)
    }

    fn send<R: Receiver>(to: &Sender<R::Message>, message: R::Message) {
        let _ = to.send(message);
    }

    async fn serve<S: Service>(&self, service: S) -> Sender<Request> {
        let (mailbox, requests) = channel::<Request>();
        thread::spawn(move || {
            for request in requests {
                // If the caller has given up, it counts the reply as missing.
                let _ = request.reply.send(service.reply(request.value));
            }
        });
        mailbox
    }

    async fn call<S: Service>(&self, service: &Sender<Request>, value: u64) -> Option<u64> {
        let (reply, answer) = sync_channel(1);
        service.send(Request { value, reply }).ok()?;
        answer.recv().ok()
    }

    async fn start_timed<T: Timed>(&self, mut timed: T) -> Sender<T::Message> {
        let (mailbox, inbox) = channel();
        thread::spawn(move || {
            timed.begin();
            let limit = loop {
                if let Some(limit) = timed.waits() {
                    break limit;
                }
                match inbox.recv() {
                    Ok(message) => timed.receive(message),
                    Err(_) => return,
                }
            };
            if matches!(inbox.recv_timeout(limit), Err(RecvTimeoutError::Timeout)) {
                timed.time_out();
            }
        });
        mailbox
    }

    fn send_timed<T: Timed>(to: &Sender<T::Message>, message: T::Message) {
        let _ = to.send(message);
    }
}

struct Turn<M> {
    mailbox: Sender<M>,
    is_last: bool,
}

impl<A: Actor<Threads>> ActorContext<Threads, A> for Turn<A::Message> {
    fn address(&self) -> Sender<A::Message> {
        self.mailbox.clone()
    }

    fn tell_self(&mut self, message: A::Message) {
        let _ = self.mailbox.send(message);
    }

    fn start<B: Actor<Threads>>(&mut self, actor: B) -> Sender<B::Message> {
        start(actor)
    }

    fn stop(&mut self) {
        self.is_last = true;
    }
}

fn start<A: Actor<Threads>>(mut actor: A) -> Sender<A::Message> {
    let (mailbox, inbox) = channel();
    let mut turn = Turn { mailbox: mailbox.clone(), is_last: false };
    thread::spawn(move || {
        actor.started(&mut turn);
        while !turn.is_last
            && let Ok(message) = inbox.recv()
        {
            actor.handle(message, &mut turn);
        }
    });
    mailbox
}

impl ActorHost for Threads {
    type ActorAddress<A: Actor<Self>> = Sender<A::Message>;

    fn start_actor<A: Actor<Self>>(&self, actor: A) -> Sender<A::Message> {
        start(actor)
    }

    fn tell<A: Actor<Self>>(to: &Sender<A::Message>, message: A::Message) {
        let _ = to.send(message);
    }

    async fn run(&self, client: impl Future<Output = ()> + Send + 'static) {
        let timers = self.timers.clone();
        thread::spawn(move || timers.block_on(client));
    }
}
