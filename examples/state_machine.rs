//! A state machine with state time-outs: an order that expires if nobody pays, is refunded if
//! nobody ships, and is closed when the time for a return is over.
//!
//! ```text
//!  Placed ──pay──► Paid ──ship──► Shipped
//!    │ time-out     │ time-out      │ time-out
//!    ▼              ▼               ▼
//!  Expired        Refunded        Closed
//! ```
//!
//! Run it: `cargo run -p throng-examples --bin state_machine`. Output: the states of three orders,
//! one for each end.

use std::time::Duration;
use throng::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Placed,
    Paid,
    Shipped,
    Expired,
    Refunded,
    Closed,
}

/// Longest stays in the states that have a time-out.
struct Limits {
    placed: Duration,
    paid: Duration,
    shipped: Duration,
}

/// A process for an order.
struct Order {
    state: State,
    limits: Limits,
    /// Time-out of the state.
    timer: Option<Timer>,
    /// States so far, in order.
    history: Vec<State>,
    /// Caller that waits for the end.
    waiting: Option<ReplyTo<Vec<State>>>,
}

#[process]
impl Order {
    #[hook]
    fn started(&mut self, cx: &mut Context<Self>) {
        self.enter(State::Placed, cx);
    }

    /// Takes the payment. The error is the state that does not allow it.
    #[message]
    fn pay(&mut self, cx: &mut Context<Self>) -> Result<(), State> {
        self.advance(State::Placed, State::Paid, cx)
    }

    /// Sends the goods. The error is the state that does not allow it.
    #[message]
    fn ship(&mut self, cx: &mut Context<Self>) -> Result<(), State> {
        self.advance(State::Paid, State::Shipped, cx)
    }

    /// Ends the stay in the state `of`.
    #[message(send)]
    fn time_out(&mut self, cx: &mut Context<Self>, of: State) {
        let next = match of {
            State::Placed => State::Expired,
            State::Paid => State::Refunded,
            _ => State::Closed,
        };
        // A timer that is cancelled too late has its message in the mailbox already: it names a
        // state that is over, and is ignored. A machine that enters a state twice counts its stays.
        let _ = self.advance(of, next, cx);
    }

    /// Replies with all states once the order has come to an end.
    #[message]
    fn end(&mut self, reply: ReplyTo<Vec<State>>) {
        self.waiting = Some(reply);
        self.tell_end();
    }

    fn advance(&mut self, from: State, to: State, cx: &mut Context<Self>) -> Result<(), State> {
        if self.state != from {
            return Err(self.state);
        }
        self.enter(to, cx);
        Ok(())
    }

    /// Enters a state: cancels the time-out of the last state and sets its own.
    fn enter(&mut self, state: State, cx: &mut Context<Self>) {
        self.state = state;
        self.history.push(state);
        let limit = match state {
            State::Placed => Some(self.limits.placed),
            State::Paid => Some(self.limits.paid),
            State::Shipped => Some(self.limits.shipped),
            _ => None,
        };
        let timer = limit.map(|limit| cx.send_after(limit, TimeOut { of: state }));
        if let Some(timer) = std::mem::replace(&mut self.timer, timer) {
            cx.cancel_timer(&timer);
        }
        self.tell_end();
    }

    fn tell_end(&mut self) {
        let is_over = matches!(self.state, State::Expired | State::Refunded | State::Closed);
        if let Some(reply) = self.waiting.take_if(|_| is_over) {
            // A caller that has given up needs no answer.
            let _ = reply.send(self.history.clone());
        }
    }
}

fn place(runtime: &RuntimeHandle, limits: Limits) -> Result<Address<Order>, SpawnError<Order>> {
    let (state, timer, history, waiting) = (State::Placed, None, Vec::new(), None);
    runtime.spawn(Order { state, limits, timer, history, waiting })
}

fn refused(state: State) -> String {
    format!("an order that is {state:?} does not take this")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (soon, late) = (Duration::from_millis(10), Duration::from_secs(3600));
    let runtime = Runtime::builder().start()?;
    runtime.block_on(async |runtime| {
        let kept = place(runtime, Limits { placed: late, paid: late, shipped: soon })?;
        kept.pay().await?.map_err(refused)?;
        kept.ship().await?.map_err(refused)?;
        println!("kept: {:?}", kept.end().await?);

        let forgotten = place(runtime, Limits { placed: soon, paid: late, shipped: late })?;
        println!("forgotten: {:?}", forgotten.end().await?);
        if let Err(state) = forgotten.pay().await? {
            println!("forgotten: {}", refused(state));
        }

        let sold_out = place(runtime, Limits { placed: late, paid: soon, shipped: late })?;
        sold_out.pay().await?.map_err(refused)?;
        println!("sold out: {:?}", sold_out.end().await?);
        Ok(())
    })
}
