//! The typed client of `#[process]`, on an entity.

use serde::{Deserialize, Serialize};
use throng::client::Client;
use throng::prelude::*;
use throng_durable::{Durable, Entity, EntityError, Node};

use crate::{HANGS_AFTER, on_node, runtime};

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

    #[message(send)]
    fn reset(&mut self) {
        self.balance = 0;
    }

    #[message]
    async fn give(&mut self, amount: u64, to: Entity<Account>) -> Result<u64, EntityError> {
        let theirs = to.deposit(amount).await?;
        self.balance -= amount;
        Ok(theirs)
    }
}

#[test]
fn an_entity_has_the_typed_client() {
    on_node(async |node| {
        assert_eq!(node.entity::<Account>("alice").deposit(5).await.unwrap(), 5);
        let alice = node.entity::<Account>("alice");
        let borrowed = &alice;
        borrowed.send_deposit(5).unwrap();
        assert_eq!(alice.balance().within(HANGS_AFTER).await.unwrap(), 10);
        let given = alice.give(3, node.entity("bob")).await.unwrap();
        assert_eq!(given.unwrap(), 3);
        alice.reset().unwrap();
        assert_eq!(alice.balance().await.unwrap(), 0);

        let nameless = node.entity::<Account>("");
        assert!(matches!(nameless.balance().await, Err(EntityError::Key(_))));
        let unsent = nameless.send_deposit(4).unwrap_err();
        assert_eq!(unsent.message.amount, 4);
    });
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
    let runtime = runtime();
    let add = |amount| {
        Apply(move |account: &mut Account| {
            account.balance += amount;
            account.balance
        })
    };
    runtime.block_on(async |_| {
        let node = Node::options(directory.path()).open(&runtime).unwrap();
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
        drop((account, node, unsent));
        let node = Node::options(directory.path()).open(&runtime).unwrap();
        assert_eq!(node.entity::<Account>("alice").balance().await.unwrap(), 7);
        node.shutdown().await;
    });
}
