//! What an operator sees and does by the names of kinds: pages of entities and of what they have, messages that are
//! retried and skipped, and entities that are copied.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_durable::{
    Durable, DurableContext, ExportedRecord, Node, OnFailure, OpenError, Pending, Records,
    RecordsError, Retry, Schedule, Steps, Str, Workflows, workflow,
};
use throng_store::{Bytes, Store};

use crate::{on_node, program, until};

/// An entity with something in every table.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "desk", on_failure = OnFailure::park_after(1))]
struct Desk {
    text: String,
    handled: Vec<u64>,
    #[serde(skip)]
    is_mended: bool,
}

#[process]
impl Desk {
    #[message]
    fn write(&mut self, cx: &mut Context<Self>, text: String) -> u64 {
        for cell in 0..3 {
            cx.cells::<Str, String>("drawers").put(&format!("{cell}\n{text}"), &text);
        }
        cx.remind("late", Schedule::after(Duration::from_secs(86_400)), Work { id: 7 });
        cx.remind("daily", Schedule::cron("0 9 * * *", "UTC").unwrap(), Work { id: 8 });
        self.text = text;
        1
    }
    #[message]
    fn mend(&mut self) {
        self.is_mended = true;
    }
    #[message]
    fn handled(&self) -> Vec<u64> {
        self.handled.clone()
    }
    #[message(durable)]
    fn work(&mut self, id: u64) {
        assert!(self.is_mended || id.is_multiple_of(2), "out of <paper>\n");
        self.handled.push(id);
    }
}

/// Keys with characters that are special anywhere.
const KEYS: [&str; 6] = ["a", "a\0", "a'\"\\/\n\r\t", "\u{202e}<b>&amp;", "ä/€", "../../etc"];

#[workflow]
async fn bake(cx: &Steps, input: String) -> Result<u64, throng_durable::Failure> {
    let mixed = cx.step("mix", Retry::none(), async || Ok::<_, String>(input.len() as u64));
    let mixed = mixed.await?;
    cx.step("oven", Retry::none(), async || Err::<(), _>("too <cold>".to_owned())).await.ok();
    cx.wait::<u64>("eat", Some(Duration::from_secs(86_400))).await?;
    Ok(mixed)
}

/// Fills a directory, and returns when nothing moves any more.
async fn fill(node: &Node) {
    for key in KEYS {
        let desk = node.entity::<Desk>(key);
        desk.write(format!("of {key}")).once("write").await.unwrap();
        for id in [1, 3] {
            desk.send_durable(Work { id }).await.unwrap();
        }
        until(async || desk.inbox().unwrap().parked.len() >= 2).await;
        desk.pin().await.unwrap();
        // A message that was parked has ended the activation.
        desk.handled().await.unwrap();
    }
}

/// Returns all records of a stopped node.
fn all(path: &std::path::Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let store = open(path);
    let snapshot = store.snapshot().unwrap();
    let named = store.stat_databases().unwrap().into_iter().filter_map(|own| own.name);
    let named = named.map(|name| store.database::<Bytes, Bytes>(&name).unwrap());
    let mut all = BTreeMap::new();
    for table in named.chain([store.default_database()]) {
        let records = table.range(&snapshot, ..).map(Result::unwrap);
        all.extend(records.map(|(key, value)| (key.to_vec(), value.to_vec())));
    }
    all
}

fn open(path: &std::path::Path) -> Store {
    loop {
        match Store::open(path) {
            Err(OpenError::InUse { .. }) => std::thread::yield_now(),
            store => return store.unwrap(),
        }
    }
}

#[test]
fn entities_and_what_they_have_are_listed_page_by_page() {
    on_node(async |node| {
        fill(node).await;
        let records = node.records();
        let mut sorted = KEYS.to_vec();
        sorted.sort_unstable();
        let (mut listed, mut after) = (Vec::new(), None);
        while let Some(own) = records.list("desk", "", after.as_deref(), 1).unwrap().pop() {
            assert!(own.is_live && own.state.is_ok(), "{own:?}");
            after = Some(own.key.clone());
            listed.push(own.key);
        }
        assert_eq!(listed, sorted);
        for which in [Pending::Parked, Pending::Reminders] {
            let (mut found, mut after) = (Vec::new(), None);
            while let Some(key) = records.pending("desk", which, after.as_deref(), 1).unwrap().pop()
            {
                after = Some(key.clone());
                found.push(key);
            }
            sorted.sort_by_key(|key| (key.len(), *key));
            assert_eq!(found, sorted, "{which:?}");
        }
        assert!(records.pending("desk", Pending::Waiting, None, 9).unwrap().is_empty());
        for key in KEYS {
            let own = records.inspect("desk", key).unwrap().unwrap();
            let counts = [own.cells, own.waiting, own.parked, own.reminders, own.replies];
            assert_eq!(counts.map(|own| own.entries), [3, 0, 2, 2, 1]);
            assert!(
                own.is_pinned && own.is_live && own.next_reminder_ms.is_some() && own.run.is_none()
            );
            let text = own.state.unwrap().text.unwrap();
            assert!(text.starts_with(r#"{"text": "of "#) && !text.contains(['\n', '\0']), "{text}");
            let mut cells = records.cells("desk", key, None, 2).unwrap();
            assert_eq!((cells.len(), &*cells[1].map), (2, "drawers"));
            let cursor = cells.pop().unwrap().cursor;
            let rest = records.cells("desk", key, Some(&cursor), 9).unwrap();
            assert!(rest.len() == 1 && rest[0].key.starts_with(b"2\n"), "{rest:?}");
            let first = records.messages("desk", key, Pending::Parked, None, 1).unwrap();
            let (name, text) = (&*first[0].name, first[0].value.text.as_deref());
            assert_eq!((first.len(), name, text), (1, "work", Ok(r#"{"id": 1}"#)));
            assert_eq!(first[0].attempts, 1);
            assert!(first[0].reason.as_ref().unwrap().contains("out of <paper>"));
            assert!(first[0].place.as_ref().unwrap().contains("operate.rs"));
            let after = Some(first[0].sequence);
            let rest = records.messages("desk", key, Pending::Parked, after, 9).unwrap();
            assert_eq!(rest.len(), 1);
            let reminders = records.reminders("desk", key, None, 9).unwrap();
            let schedules: Vec<_> =
                reminders.iter().map(|own| own.schedule.clone().unwrap()).collect();
            assert_eq!(schedules, ["0 9 * * * UTC", "once"]);
            assert_eq!(reminders[1].value.text.as_deref(), Ok(r#"{"id": 7}"#));
            let rest = records.reminders("desk", key, Some("daily"), 9).unwrap();
            assert_eq!(rest, reminders[1..]);
        }
        assert!(matches!(records.inspect("disk", "a"), Err(RecordsError::NoKind(_))));
        assert!(matches!(records.inspect("desk", ""), Err(RecordsError::Key(_))));
        assert_eq!(records.inspect("desk", "nobody").unwrap(), None);
        node.shutdown().await;
        assert!(!records.inspect("desk", "a").unwrap().unwrap().is_live);
    });
}

#[test]
fn a_message_is_retried_and_skipped_by_the_name_of_its_kind() {
    let directory = tempfile::tempdir().unwrap();
    program(Node::options(directory.path()), async |node| {
        fill(node).await;
        let desk = node.entity::<Desk>("a");
        desk.mend().await.unwrap();
        let parked = desk.inbox().unwrap().parked;
        let [first, second] = [0, 1].map(|at: usize| parked[at].sequence);
        assert!(node.retry_message("desk", "a", first).await.unwrap());
        until(async || desk.handled().await.unwrap() == [1]).await;
        assert!(node.skip_message("desk", "a", second).await.unwrap());
        assert!(desk.inbox().unwrap().parked.is_empty());
        // Everything is over, or was never there.
        for sequence in [first, second, u64::MAX] {
            assert!(!node.retry_message("desk", "a", sequence).await.unwrap(), "{sequence}");
            assert!(!node.skip_message("desk", "a", sequence).await.unwrap(), "{sequence}");
        }
        assert!(!node.retry_message("desk", "nobody", first).await.unwrap());
        assert!(matches!(node.retry_message("disk", "a", 1).await, Err(RecordsError::NoKind(_))));
        assert!(node.forget_entity("desk", "a").await.unwrap());
        assert!(!node.forget_entity("desk", "a").await.unwrap());
        assert_eq!(node.records().inspect("desk", "a").unwrap(), None);
    });
    // A program that has not used the kind: its messages are handled once it does.
    program(Node::options(directory.path()), async |node| {
        let forgotten = node.forget_entity("desk", "ä/€").await;
        assert!(matches!(forgotten, Err(RecordsError::Unclaimed(_))), "{forgotten:?}");
        let parked = node.records().messages("desk", "ä/€", Pending::Parked, None, 9).unwrap();
        assert!(node.retry_message("desk", "ä/€", parked[0].sequence).await.unwrap());
        let desk = node.entity::<Desk>("ä/€");
        until(async || desk.inbox().unwrap().waiting.is_empty()).await;
    });
}

#[test]
fn a_run_is_shown_with_its_steps_and_their_results() {
    on_node(async |node| {
        node.run_workflows(Workflows::new().with(Bake));
        let run = node.workflow::<Bake>("<1>");
        run.start(&"bread".to_owned()).await.unwrap();
        let records = node.records();
        let steps = |after, limit| records.steps("workflow", "bake/<1>", after, limit).unwrap();
        until(async || steps(None, 9).len() >= 3).await;
        let shown = |own: &throng_durable::ShownStep| {
            let result = own.result.as_ref().map(|result| result.text.clone().unwrap());
            (own.name.clone(), own.status.clone(), result)
        };
        let first = steps(None, 1);
        assert_eq!(shown(&first[0]), ("mix".into(), "done".into(), Some("5".into())));
        let rest = steps(Some(first[0].order), 9);
        assert_eq!(shown(&rest[0]), ("oven".into(), "failed".into(), None));
        assert_eq!(rest[0].reason.as_deref(), Some("too <cold>"));
        assert_eq!(shown(&rest[1]), ("eat".into(), "waits".into(), None));
        let state = || records.inspect("workflow", "bake/<1>").unwrap().unwrap().run.unwrap();
        assert_eq!((&*state().workflow, &*state().status), ("bake", "running"));
        assert_eq!(state().input.unwrap().text.as_deref(), Ok(r#""bread""#));
        run.signal("eat", &1u64).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 5);
        let done = state();
        assert_eq!((&*done.status, done.result.unwrap().text.as_deref()), ("done", Ok("5")));
    });
}

#[test]
fn an_exported_entity_is_imported_byte_for_byte() {
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    program(Node::options(from.path()), fill);
    let (source, target) = (open(from.path()), open(to.path()));
    let (records, imported) = (Records::of(source.clone()), Records::of(target.clone()));
    for key in KEYS {
        let export = || records.export("desk", key).unwrap().unwrap();
        // A name too few, a foreign shape, no message's number, and nothing at all are refused, and nothing is written.
        let without = |table| export().filter(move |own| own.as_ref().unwrap().table != table);
        let and = |table, key: &[u8], value: &[u8]| {
            let further = ExportedRecord::new(table, key.into(), value.into());
            export().chain([Ok(further)]).collect::<Vec<_>>()
        };
        if key == KEYS[0] {
            for (what, export) in [
                ("a name too few", without('M').collect()),
                ("a table too many", and('Q', b"", b"")),
                ("a state too many", and('S', b"other", b"")),
                ("no number", and('I', b"short", b"")),
                ("the last number of all", and('I', &[0xff; 8], b"")),
                ("a late name", and('K', b"\0late", &[9, 0])),
                ("nothing", Vec::new()),
            ] {
                let refused = imported.import("desk", key, export);
                assert!(matches!(refused, Err(RecordsError::Unfit(_))), "{what}: {refused:?}");
                assert!(!matches!(imported.inspect("desk", key), Ok(Some(_))), "{what}");
            }
        }
        assert_eq!(imported.import("desk", key, export()).unwrap(), 10, "{key:?}");
        let again = imported.import("desk", key, export());
        assert!(matches!(again, Err(RecordsError::Exists { .. })), "{again:?}");
    }
    drop((records, imported, source, target));
    let (before, after) = (all(from.path()), all(to.path()));
    for (key, value) in &before {
        assert_eq!(after.get(key), Some(value), "{}", key.escape_ascii());
    }
    assert_eq!(before.len(), after.len());

    // The node is none the wiser.
    program(Node::options(to.path()), async |node| {
        let desk = node.entity::<Desk>("a");
        desk.mend().await.unwrap();
        desk.send_durable(Work { id: 2 }).await.unwrap();
        until(async || desk.handled().await.unwrap() == [2]).await;
        let parked = desk.inbox().unwrap().parked;
        desk.retry_message(parked[0].sequence).await.unwrap();
        until(async || desk.handled().await.unwrap() == [2, 1]).await;
    });
}

#[test]
fn an_import_gives_no_number_a_second_meaning() {
    /// Another program's desk.
    #[derive(Durable, Default, Serialize, Deserialize)]
    #[durable(kind = "desk")]
    struct Other {
        legs: u8,
    }
    #[process]
    impl Other {
        #[message]
        fn add(&mut self) {
            self.legs += 1;
        }
    }
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    program(Node::options(from.path()), fill);
    program(Node::options(to.path()), async |node| {
        node.entity::<Other>("b").add().await.unwrap();
    });
    let records = Records::of(open(from.path()));
    let before = all(to.path());
    let imported = Records::of(open(to.path()));
    let export = records.export("desk", "a").unwrap().unwrap();
    let refused = imported.import("desk", "a", export);
    assert!(matches!(refused, Err(RecordsError::Unfit(_))), "{refused:?}");
    drop(imported);
    assert_eq!(all(to.path()), before);
}
