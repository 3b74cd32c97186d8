//! Live timelines: how long they stay in memory, and what they monitor.

use std::time::Duration;

use throng::prelude::*;

use super::{Leave, Timeline};
use crate::name::Name;
use crate::service::Social;
use crate::testing::{register, wait_until, with_the_service};

/// Reads a timeline, and returns its process.
async fn read(social: &Social, reader: &Name) -> Address<Timeline> {
    social.timeline(reader, None, 20).await.unwrap();
    social.live.0.timelines.get(reader).unwrap()
}

#[test]
fn a_timeline_ends_at_the_second_tick_without_a_read() {
    with_the_service(1, async |social| {
        let [alice, _] = register(social, ["alice", "bob"]).await;
        let timeline = read(social, &alice).await;
        let find = || social.live.0.timelines.get(&alice);
        for _ in 0..2 {
            timeline.send(Leave {}).unwrap();
            // Without another message, which would keep the timeline from its end.
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(find(), Some(timeline), "it was read since the last tick");
            assert_eq!(read(social, &alice).await, timeline);
        }
        timeline.send(Leave {}).unwrap();
        timeline.send(Leave {}).unwrap();
        wait_until(async || find().is_none()).await;
        assert_ne!(read(social, &alice).await, timeline);
    });
}

#[test]
fn a_timeline_monitors_its_relay_once_however_often_it_is_built() {
    with_the_service(1, async |social| {
        let [alice, bob] = register(social, ["alice", "bob"]).await;
        let monitors = async || {
            let timeline = read(social, &alice).await;
            social.runtime().info(timeline).await.unwrap().monitors
        };
        let first = monitors().await;
        assert_eq!(first.len(), 1);
        for _ in 0..3 {
            social.follow(&alice, &bob).await.unwrap();
            assert_eq!(monitors().await, first);
            social.unfollow(&alice, &bob).await.unwrap();
            assert_eq!(monitors().await, first);
        }
        first[0].kill();
        // The supervisor starts another relay; until then, reads are answered without the timeline.
        wait_until(async || {
            let monitors = monitors().await;
            monitors.len() == 1 && monitors != first
        })
        .await;
    });
}
