//! Entities that cannot be loaded: their list, their export as bytes, and their removal.

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{
    Durable, DurableContext, EntityError, Node, ReadError, RecordsError, StateError, Str,
};
use throng_store::{Batch, Bytes, Store};

use crate::layouts::Layout;
use crate::{Counter, CounterClient, reopen, runtime, stored};

/// A state of another program, under the kind of the counter.
#[derive(Default, Durable, Serialize, Deserialize)]
#[durable(kind = "fragile")]
struct Fragile {
    count: u64,
    /// Whether the hook `started` panics.
    cracked: bool,
}

#[process]
impl Fragile {
    #[hook]
    fn started(&mut self) {
        assert!(!self.cracked, "cracked");
    }
    /// Changes the state and a cell.
    #[message]
    fn crack(&mut self, cx: &mut Context<Self>) {
        self.cracked = true;
        cx.cells::<Str, u64>("cracks").put("first", &1);
    }
    #[message]
    fn touch(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}

#[test]
fn entities_that_cannot_be_loaded_are_listed_exported_and_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let options = Node::options(directory.path());
    runtime.block_on(async |handle| {
        let node = options.clone().open(handle).unwrap();
        for key in ["damaged", "foreign", "short", "sound"] {
            node.entity::<Fragile>(key).touch().await.unwrap();
        }
        node.entity::<Fragile>("foreign").pin().await.unwrap();
        node.entity::<Fragile>("cracked").crack().await.unwrap();
        node.entity::<Counter>("it").add(1).await.unwrap();
        node.shutdown().await;
        drop(node);

        let store = loop {
            match Store::open(directory.path()) {
                Err(throng_durable::OpenError::InUse { .. }) => tokio::task::yield_now().await,
                store => break store.unwrap(),
            }
        };
        let (snapshot, table) =
            (store.snapshot().unwrap(), store.default_database::<Bytes, Bytes>());
        let state_key = |key| Layout::of(&store, &snapshot).state_key("fragile", key).unwrap();
        let batch = Batch::new().put(&table, &state_key("foreign"), &[0xff, 0x7f, 1, 2, 3]);
        let batch = batch.put(&table, &state_key("short"), &[1]);
        store.write(batch).wait().unwrap();
        drop((snapshot, table, store));

        let node = reopen(options, handle).await;
        let unreadable = || -> Vec<_> {
            let view = node.stored::<Fragile>().unwrap();
            view.unreadable().map(|found| found.unwrap()).collect()
        };
        let listed = unreadable();
        let keys: Vec<_> = listed.iter().map(|found| &*found.key).collect();
        assert_eq!(keys, ["foreign", "short"]);
        let foreign = &listed[0].error;
        assert!(matches!(foreign, EntityError::State(StateError::Undecodable { .. })), "{foreign}");

        let foreign = node.entity::<Fragile>("foreign");
        assert!(matches!(foreign.touch().await, Err(EntityError::State(_))));
        assert!(matches!(foreign.forget().await, Err(EntityError::State(_))));
        let records = node.records();
        let export = |key| -> Vec<_> {
            let export = records.export("fragile", key).unwrap().unwrap();
            let own = export.map(|record| record.unwrap()).filter(|own| "SPC".contains(own.table));
            own.map(|own| (own.table, own.key, own.value.unwrap())).collect()
        };
        let state = ('S', vec![], vec![0xff, 0x7f, 1, 2, 3]);
        assert_eq!(export("foreign"), [state, ('P', vec![], vec![])]);
        // The number of the map, then the key; the number of the shape, then the value.
        assert_eq!(export("cracked")[1], ('C', b"\x00\x01first".to_vec(), vec![1, 1]));
        assert!(records.export("fragile", "nobody").unwrap().is_none());
        assert!(matches!(records.export("nothing", "it"), Err(RecordsError::NoKind(_))));
        assert!(matches!(records.forget("fragile", "foreign"), Err(RecordsError::Live)));
        let all = records.list("fragile", "", None, 10).unwrap();
        assert_eq!(
            all.iter().map(|one| &*one.key).collect::<Vec<_>>()[..2],
            ["cracked", "damaged"]
        );
        let some = records.list("fragile", "s", Some("short"), 1).unwrap();
        assert_eq!(some.iter().map(|one| &*one.key).collect::<Vec<_>>(), ["sound"]);
        assert_eq!(records.kinds().unwrap(), [("counter".into(), 1), ("fragile".into(), 5)]);

        // The last two can be loaded, one of them with a hook that panics.
        assert!(node.entity::<Fragile>("cracked").touch().await.is_err());
        for key in ["foreign", "short", "cracked", "sound"] {
            node.forget_unreadable::<Fragile>(key).await.unwrap();
            assert_eq!(node.entity::<Fragile>(key).touch().await.unwrap(), 1, "{key}");
            node.entity::<Fragile>(key).forget().await.unwrap();
            assert!(records.export("fragile", key).unwrap().is_none(), "{key}");
        }
        assert_eq!((unreadable().len(), stored(&node, "fragile")), (0, 1));
        assert_eq!(node.stat().unwrap().pinned, 0);
        assert_eq!(node.entity::<Counter>("it").get().await.unwrap(), 1);
        node.shutdown().await;
    });
}

/// A value with a wrong checksum: damage at rest.
#[test]
fn an_entity_with_a_damaged_record_is_listed_and_forgotten_with_its_cells() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let options = Node::options(directory.path());
    let (count, other) = (0x1234_5678_9abc_def0_u64, 0x0fed_cba9_8765_4321_u64);
    runtime.block_on(async |handle| {
        let node = options.clone().open(handle).unwrap();
        let damaged = node.entity::<Counter>("damaged");
        damaged.add(count).await.unwrap();
        node.entity::<Counter>("sound").add(other).await.unwrap();
        node.entity::<Fragile>("cell").crack().await.unwrap();
        node.shutdown().await;
        drop((damaged, node));
        // Only the state of one entity has these bytes.
        let record = postcard_of(count);
        let file = directory.path().join("data.mdb");
        let mut bytes = std::fs::read(&file).unwrap();
        let places = bytes.windows(record.len()).enumerate();
        let places: Vec<_> =
            places.filter(|(_, bytes)| *bytes == record).map(|(at, _)| at).collect();
        assert!(!places.is_empty());
        places.into_iter().for_each(|at| bytes[at] ^= 1);
        std::fs::write(&file, bytes).unwrap();

        let node = reopen(options, handle).await;
        let damaged = node.entity::<Counter>("damaged");
        let called = damaged.get().await;
        assert!(matches!(called, Err(EntityError::Load(ReadError::Corrupt(_)))), "{called:?}");
        let view = node.stored::<Counter>().unwrap();
        let keys: Vec<_> = view.keys().map(|key| key.unwrap().to_owned()).collect();
        assert_eq!(keys, ["damaged", "sound"], "damage of a state hides no key");
        assert!(view.contains("damaged").unwrap());
        let unreadable: Vec<_> = view.unreadable().map(|found| found.unwrap().key).collect();
        assert_eq!(unreadable, ["damaged"]);
        let list = node.records().list("counter", "", None, 10).unwrap();
        assert!(list[0].state.is_err() && list[1].state.is_ok(), "{list:?}");
        drop(view);
        node.forget_unreadable::<Counter>("damaged").await.unwrap();
        assert_eq!(damaged.get().await.unwrap(), 0);
        assert_eq!(
            (stored(&node, "counter"), node.entity::<Counter>("sound").get().await.unwrap()),
            (1, other)
        );
        node.shutdown().await;
    });
}

/// Returns a number as it is encoded in a state.
fn postcard_of(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}
