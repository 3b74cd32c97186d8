//! The typed client of `#[process]`, on an entity.

use serde::{Deserialize, Serialize};
use throng::client::Client;
use throng::prelude::*;
use throng_durable::{Durable, EntityError, Node};

use crate::{on_node, program, runtime};

#[derive(Default, Serialize, Deserialize, Durable)]
#[durable(kind = "account")]
struct Account {
    balance: u64,
}

#[process]
impl Account {
    #[message]
    async fn deposit(&mut self, amount: u64) -> u64 {
        self.balance += amount;
        self.balance
    }

    #[message]
    async fn balance(&self) -> u64 {
        self.balance
    }
}

/// Takes each handle of an account.
async fn deposit_twice<C: AccountClient>(account: C) -> Result<u64, C::CallError<Deposit>> {
    account.deposit(1).await?;
    Client::call(account, Deposit { amount: 1 }).await
}

#[test]
fn a_function_takes_an_address_and_an_entity() {
    on_node(async |node| {
        let alice = node.entity::<Account>("alice");
        assert_eq!(deposit_twice(&alice).await.unwrap(), 2);
    });
    let runtime = runtime();
    let account = runtime.spawn(Account { balance: 10 }).unwrap();
    assert_eq!(runtime.block_on(async |_| deposit_twice(account).await).unwrap(), 12);
}

/// Runs a closure on the state.
struct Apply<F>(F);

impl<P: Process, R: Send + 'static, F> Turn<P> for Apply<F>
where
    F: FnOnce(&mut P) -> R + Send + 'static,
{
    type Reply = R;

    async fn run(self, process: &mut P, _: &mut Context<P>) -> R {
        (self.0)(process)
    }
}

#[test]
fn any_turn_is_committed_like_a_message() {
    let directory = tempfile::tempdir().unwrap();
    let add = |amount| {
        Apply(move |account: &mut Account| {
            account.balance += amount;
            account.balance
        })
    };
    program(Node::options(directory.path()), async |node| {
        let account = node.entity::<Account>("alice");
        assert_eq!(account.call(add(3)).await.unwrap(), 3);
        account.send(add(4)).unwrap();
        let failed = account.call(Apply(|account: &mut Account| {
            account.balance = 0;
            panic!("on purpose");
        }));
        assert!(matches!(failed.await, Err(EntityError::Panicked(_))));
        assert_eq!(account.balance().await.unwrap(), 7);
        node.shutdown().await;
        let unsent = account.send(add(5)).unwrap_err();
        assert!(matches!(unsent.error, EntityError::ShutDown), "{unsent:?}");
    });
    program(Node::options(directory.path()), async |node| {
        assert_eq!(node.entity::<Account>("alice").balance().await.unwrap(), 7);
    });
}
