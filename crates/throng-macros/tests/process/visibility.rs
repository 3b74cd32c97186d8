//! Visibility: a message is as visible as its method.

use crate::runtime;
use bank::{Safe, SafeClient as _};
use throng::prelude::*;

mod bank {
    //! Without the prelude: generated code needs nothing in scope.

    pub struct Safe {
        pub(super) content: u64,
    }

    #[throng::process]
    impl Safe {
        #[throng::message]
        pub async fn content(&self) -> u64 {
            self.content
        }

        #[throng::message]
        pub(crate) fn audit(&self) -> bool {
            self.content > 0
        }

        #[throng::message]
        fn steal(&mut self) -> u64 {
            std::mem::take(&mut self.content)
        }

        /// Sends a private message to itself.
        #[throng::message]
        pub fn burgle(&mut self, cx: &mut throng::Context<Self>) -> bool {
            cx.address().send_steal().is_ok()
        }
    }
}

#[test]
fn private_messages_are_for_the_module_itself() {
    use bank::SafeClientCrate as _;
    let runtime = runtime();
    let safe: Address<Safe> = runtime.spawn(Safe { content: 9 }).unwrap();
    runtime
        .block_on(async |_| {
            assert_eq!(safe.content().await?, 9);
            assert_eq!(safe.call(bank::Content).await?, 9);
            assert!(safe.audit().await?);
            assert!(safe.burgle().await?);
            assert_eq!(safe.content().await?, 0);
            Ok::<_, throng::Error>(())
        })
        .unwrap();
}

mod hostile {
    //! Names that generated code might use carelessly.

    #![allow(dead_code, non_camel_case_types)]

    mod throng {}
    mod core {}
    mod std {}
    struct Result;
    struct Send;
    struct Future;
    struct Option;
    struct Call;

    pub(super) struct Odd;

    #[::throng::process]
    impl Odd {
        #[message]
        pub(super) async fn tell(&mut self, message: u8, cx: u8, argument: u8) -> u8 {
            message + cx + argument
        }
    }
}

#[test]
fn generated_code_is_not_misled_by_names_around_it() {
    use hostile::OddClient as _;
    let runtime = runtime();
    let odd = runtime.spawn(hostile::Odd).unwrap();
    assert_eq!(runtime.block_on(async |_| odd.tell(1, 2, 3).await).unwrap(), 6);
}
