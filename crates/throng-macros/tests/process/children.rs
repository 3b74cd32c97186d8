//! The client on the handle of a supervised child, whose incarnation changes.

use crate::runtime;
use throng::prelude::*;

struct Shelf<T> {
    things: Vec<T>,
}

#[process]
impl<T: Clone + Send + Sync + 'static> Shelf<T> {
    #[message]
    fn put(&mut self, thing: T) -> usize {
        self.things.push(thing);
        self.things.len()
    }

    #[message]
    fn count(&self, reply: ReplyTo<usize>) {
        let _ = reply.send(self.things.len());
    }

    #[message(send)]
    fn collapse(&mut self) {
        panic!("on purpose");
    }
}

#[test]
fn a_childs_handle_has_the_client_and_reaches_whichever_incarnation_runs() {
    let runtime = runtime();
    runtime.block_on(async |runtime| {
        let spec = ChildSpec::new(|| Shelf::<&'static str> { things: Vec::new() });
        let handle = spec.handle();
        assert!(matches!(handle.put("early").await, Err(CallError::NoProcess(_))));
        assert!(matches!(handle.count().await, Err(CallError::NoProcess(_))));
        Supervisor::one_for_one().child("shelf", spec).start_async(runtime).await.unwrap();

        let borrowed: &Child<Shelf<&str>> = &handle;
        assert_eq!(borrowed.put("cup").await.unwrap(), 1);
        handle.send_put("plate").unwrap();
        assert_eq!(handle.count().await.unwrap(), 2);

        let first = handle.address().unwrap();
        borrowed.collapse().unwrap();
        first.pid().exited().await;
        while handle.address().is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(handle.count().await.unwrap(), 0, "another incarnation");
    });
}
