//! Names: they lead to their process, are unique, and end with it.

use crate::{Add, Counter, eventually, runtime, scaled};
use throng::RegisterError;
use throng::prelude::*;

struct Other;
impl Process for Other {}

#[test]
fn a_name_is_taken_by_one_process_which_may_have_others() {
    let runtime = runtime();
    let (first, second) =
        (runtime.spawn(Counter::default()).unwrap(), runtime.spawn(Other).unwrap());
    runtime.register("a", first).unwrap();
    runtime.register("b", first).unwrap();
    let taken = RegisterError::Taken { name: "a".into(), by: first.pid() };
    assert_eq!(runtime.register("a", second), Err(taken.clone()));
    assert_eq!(runtime.register("a", first), Err(taken));
    runtime.register("c", second).unwrap();
    let all: Vec<_> = runtime.registered().into_iter().map(|it| (it.name, it.pid)).collect();
    let expected = [("a", first.pid()), ("b", first.pid()), ("c", second.pid())];
    assert_eq!(all, expected.map(|(name, pid)| (name.into(), pid)));
    assert_eq!(runtime.whereis::<Counter>("a"), Some(first));
    assert_eq!(runtime.whereis::<Other>("a"), None, "it is a process of another type");

    assert_eq!(runtime.unregister("a"), Some(first.pid()));
    assert_eq!(runtime.unregister("a"), None);
    runtime.register("a", second).unwrap();
    runtime.block_on(async |runtime| {
        first.kill();
        first.pid().exited().await;
        let left: Vec<_> = runtime.registered().into_iter().map(|it| it.name).collect();
        assert_eq!(
            left,
            ["a", "c"].map(Into::into),
            "what it had given up is not its to take away"
        );
        let error = runtime.register("b", first).unwrap_err();
        assert_eq!(error, RegisterError::NoProcess { name: "b".into() });
    });
}

#[test]
fn names_given_and_taken_by_many_at_once_end_with_their_processes() {
    runtime().block_on(async |runtime| {
        let mut tasks = Vec::new();
        for task in 0..4 {
            let runtime = runtime.clone();
            tasks.push(tokio::spawn(async move {
                let mut won = 0;
                for round in 0..scaled(2_000) {
                    let name = format!("name {}", round % 7);
                    let process = runtime.spawn(Counter::default()).unwrap();
                    match runtime.register(name.as_str(), process) {
                        Ok(()) => {
                            won += 1;
                            assert_eq!(process.call(Add(1)).await.unwrap(), 1);
                            if (round + task) % 2 == 0 {
                                assert_eq!(runtime.unregister(&name), Some(process.pid()));
                            }
                        }
                        Err(RegisterError::Taken { by, .. }) => assert_ne!(by, process.pid()),
                        Err(error) => panic!("{error}"),
                    }
                    process.kill();
                }
                won
            }));
        }
        for task in tasks {
            assert!(task.await.unwrap() > 0);
        }
        eventually(|| runtime.process_count() == 0).await;
        assert!(runtime.registered().is_empty());
    });
}
