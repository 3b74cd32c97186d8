//! A message for each method, of every shape.

use crate::runtime;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use throng::prelude::*;

#[derive(Default)]
pub struct Account {
    balance: u64,
    log: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    x: i64,
    y: i64,
}

#[process]
impl Account {
    /// Not used by any test.
    pub const FEE: usize = 2;

    /// Adds to the balance.
    #[message(derive(Clone, Debug, PartialEq))]
    pub async fn deposit(
        &mut self,
        /// In cents.
        amount: u64,
    ) -> u64 {
        self.balance += amount;
        self.balance
    }

    #[message]
    pub async fn balance(&self) -> u64 {
        self.balance
    }

    #[message]
    pub fn balance_at_once(&self) -> u64 {
        self.balance
    }

    /// Suspends in the middle.
    #[message]
    pub async fn deposit_slowly(self: &mut Self, mut amount: u64, time: Duration) -> u64 {
        tokio::time::sleep(time).await;
        amount += self.balance;
        self.balance = amount;
        amount
    }

    #[message]
    pub fn withdraw(&mut self, amount: u64) -> Result<u64, String> {
        self.balance = self.balance.checked_sub(amount).ok_or("too little there")?;
        Ok(self.balance)
    }

    #[message]
    pub fn sum(
        &mut self,
        (a, b): (u64, u64),
        Point { x, y }: Point,
        _: u8,
        [first, ..]: [i64; Self::FEE],
    ) -> i64 {
        a as i64 + b as i64 + x + y + first
    }

    #[message]
    pub async fn whoami<'a>(
        &'a self,
        first: u8,
        cx: &mut Context<Self>,
        second: u8,
    ) -> (Address<Self>, u8) {
        (cx.address(), first + second)
    }

    #[message(send)]
    pub fn write(&mut self, message: String, cx: u8) {
        self.log.push(format!("{message}{cx}"));
    }

    #[message]
    pub fn log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    #[message(send)]
    pub async fn close(&mut self, cx: &mut Context<Self>) {
        cx.stop(ExitReason::other("closed"));
    }

    #[message(name = TypeOf)]
    pub fn r#type(&self, r#struct: &'static str) -> &'static str {
        r#struct
    }

    #[cfg(any())]
    #[message]
    pub fn balance(&self) -> Missing {}

    #[message]
    pub fn apply(&mut self, change: fn(&mut u64) -> &mut u64, then: Box<dyn FnOnce(&u64) + Send>) {
        then(change(&mut self.balance));
    }

    #[throng::message]
    #[deprecated]
    pub async fn audit(&self) {}

    /// Answered in a later turn, when there is enough.
    #[message]
    pub fn promise(&mut self, least: u64, reply: ReplyTo<u64>, cx: &mut Context<Self>) {
        if self.balance >= least {
            let _ = reply.send(self.balance);
        } else {
            // The deposit is handled before the question is tried again.
            let _ = cx.address().send_deposit(1);
            let _ = cx.address().send_promise(least, reply);
        }
    }

    fn plain(&self) -> u64 {
        self.balance
    }
}

fn on_account<R>(f: impl AsyncFnOnce(Address<Account>) -> Result<R, throng::Error>) -> R {
    let runtime = runtime();
    let account = runtime.spawn(Account::default()).unwrap();
    runtime.block_on(async |_| f(account).await).unwrap()
}

#[test]
fn a_call_runs_the_method_and_brings_its_reply() {
    on_account(async |account| {
        assert_eq!(account.deposit(5).await?, 5);
        assert_eq!(account.deposit(5).within(Duration::from_secs(60)).await?, 10);
        assert_eq!(account.balance().await?, 10);
        assert_eq!(account.balance_at_once().await?, 10);
        assert_eq!(account.withdraw(3).await?, Ok(7));
        assert_eq!(account.withdraw(8).await?, Err("too little there".to_owned()));
        assert_eq!(account.r#type("current").await?, "current");
        Ok(())
    });
}

#[test]
fn a_method_that_waits_is_one_turn() {
    on_account(async |account| {
        let slow = account.deposit_slowly(1, Duration::from_millis(10));
        let slow = tokio::spawn(slow);
        while account.balance().await? == 0 {}
        account.send_deposit_slowly(1, Duration::from_millis(1))?;
        assert_eq!(account.balance().await?, 2);
        assert_eq!(slow.await.unwrap()?, 1);
        Ok(())
    });
}

#[test]
fn messages_are_values_too() {
    on_account(async |account| {
        let deposit = Deposit { amount: 4 };
        account.send(deposit.clone())?;
        assert_eq!(account.call(deposit.clone()).await?, 8);
        assert_eq!(format!("{deposit:?}"), "Deposit { amount: 4 }");
        assert_eq!(account.call(Balance).await?, 8);
        assert_eq!(account.call(TypeOf { r#struct: "x" }).await?, "x");
        Ok(())
    });
}

#[test]
fn patterns_make_fields_by_their_place() {
    on_account(async |account| {
        let sum = account.sum((1, 2), Point { x: 3, y: 4 }, 0, [5, 0]).await?;
        assert_eq!(sum, 15);
        let message = Sum { _0: (1, 2), _1: Point { x: 3, y: 4 }, _2: 0, _3: [6, 0] };
        assert_eq!(account.call(message).await?, 16);
        Ok(())
    });
}

#[test]
fn the_context_may_stand_anywhere() {
    on_account(async |account| {
        assert_eq!(account.whoami(1, 2).await?, (account, 3));
        Ok(())
    });
}

#[test]
fn what_is_only_sent_is_sent_by_its_name_whatever_its_arguments_are_called() {
    on_account(async |account| {
        account.write("a".to_owned(), 1)?;
        account.write("b".to_owned(), 2)?;
        assert_eq!(account.log().await?, ["a1", "b2"]);
        Ok(())
    });
}

#[test]
fn a_question_is_answered_when_it_can_be() {
    on_account(async |account| {
        assert_eq!(account.promise(3).await?, 3);
        assert_eq!(account.promise(4).within(Duration::from_secs(60)).await?, 4);
        assert_eq!(account.ask(|reply| Promise { least: 0, reply }).await?, 4);
        Ok(())
    });
}

#[test]
fn functions_travel_as_arguments() {
    on_account(async |account| {
        let seen = Arc::new(AtomicU64::new(0));
        let there = seen.clone();
        let look = Box::new(move |balance: &u64| there.store(*balance, Ordering::Relaxed));
        let add: fn(&mut u64) -> &mut u64 = |balance| {
            *balance += 9;
            balance
        };
        account.apply(add, look).await?;
        assert_eq!(seen.load(Ordering::Relaxed), 9);
        Ok(())
    });
}

#[test]
fn a_dead_process_hands_the_message_back() {
    on_account(async |account| {
        account.close()?;
        while account.is_alive() {
            tokio::task::yield_now().await;
        }
        let back = account.send_deposit(7).unwrap_err().into_message();
        assert_eq!(back, Deposit { amount: 7 });
        assert!(matches!(
            account.deposit(7).await,
            Err(CallError::NoProcess(Deposit { amount: 7 }))
        ));
        Ok(())
    });
}

#[test]
fn methods_can_still_be_called_on_the_state() {
    let mut account = Account::default();
    assert_eq!(account.withdraw(0), Ok(0));
    assert_eq!(account.plain(), 0);
}

#[test]
fn what_is_deprecated_says_so_where_it_is_used() {
    on_account(async |account| {
        #[expect(deprecated)]
        account.audit().await?;
        Ok(())
    });
}

#[test]
fn a_method_that_shares_the_state_only_reads_it() {
    const fn is_read_only<M: Message>() -> bool
    where
        Account: Handle<M>,
    {
        <Account as Handle<M>>::READ_ONLY
    }
    assert!(const { is_read_only::<Balance>() && is_read_only::<BalanceAtOnce>() });
    assert!(const { !is_read_only::<Deposit>() && !is_read_only::<DepositSlowly>() });
}

/// A handler's future is the method's own, so it is no larger than that of a handler written by
/// hand.
#[test]
fn a_handler_is_the_methods_future_and_nothing_around_it() {
    let mut account = Account::default();
    let size = size_of_val(&account.deposit_slowly(1, Duration::ZERO));
    fn handled<M: Message>(_: &M) -> usize
    where
        Account: Handle<M>,
    {
        fn size<'a, M: Message, F>(
            _: &impl Fn(&'a mut Account, M, &'a mut Context<Account>) -> F,
        ) -> usize {
            size_of::<F>()
        }
        size::<M, _>(&<Account as Handle<M>>::handle)
    }
    assert_eq!(handled(&DepositSlowly { amount: 1, time: Duration::ZERO }), size);
}
