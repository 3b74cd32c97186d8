//! `throng entity`, beside a running node and on the directory of a stopped one.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use throng::prelude::*;
use throng_durable::{
    Attempt, Durable, DurableContext, Job, JobError, Node, OnFailure, QueueOptions, Queues,
    Schedule, Str, Worker,
};
use throng_node::{DashboardAddress, Host, Options, Signals};
use throng_store::{Batch, Bytes, Store};

/// An entity with something in every table.
#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "note", on_failure = OnFailure::park_after(1))]
struct Note {
    text: String,
}

#[process]
impl Note {
    #[message]
    fn write(&mut self, cx: &mut Context<Self>, text: String) -> u64 {
        cx.cells::<Str, u8>("marks").put("length", &(text.len() as u8));
        cx.remind("late", Schedule::after(Duration::from_secs(86_400)), Check { id: 7 });
        self.text = text;
        1
    }
    #[message(durable)]
    fn check(&mut self, id: u64) {
        assert!(id == 0, "out of <paper>\u{1b}[2J");
    }
}

const TEXT: &str = "This text is found in the data file, and is damaged there.";

/// Keys with characters that are special anywhere.
const KEYS: [&str; 5] = ["ann", "a\0b", "'\"\\\n\t", "\u{202e}<b>\u{1b}[2J", "-ä/.."];

/// Runs `throng entity`, or `throng queue` if that is the first word, on a directory.
fn entity(data: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throng"));
    let words = match words {
        ["queue", words @ ..] => command.arg("queue").args(["--data".as_ref(), data]).args(words),
        words => command.arg("entity").args(["--data".as_ref(), data]).args(words),
    };
    words.output().unwrap()
}

/// Returns the standard output of a successful run, which a terminal can show.
#[track_caller]
fn said(data: &Path, words: &[&str]) -> String {
    let output = entity(data, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains(['\u{1b}', '\0']), "{text:?}");
    let is_json = words[0] == "export" || words.contains(&"--json");
    assert!(is_json || !text.contains('\u{202e}'), "{text:?}");
    text
}

/// Returns the standard error of a run that must end with this status.
#[track_caller]
fn complaint(status: i32, data: &Path, words: &[&str]) -> String {
    let output = entity(data, words);
    assert_eq!(output.status.code(), Some(status), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Fills a node, and lets `beside` look at it while it serves.
fn with_node(data: &Path, beside: impl FnOnce() + Send + 'static) {
    let runtime = Runtime::builder().workers(2).start().unwrap();
    runtime.block_on(async |runtime| {
        let node = Node::options(data).open(runtime).unwrap();
        for key in KEYS {
            let note = node.entity::<Note>(key);
            note.write(TEXT.into()).once("write").await.unwrap();
            for id in [1, 2] {
                note.send_durable(Check { id }).await.unwrap();
            }
            while note.inbox().unwrap().parked.len() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // A message that was parked has ended the activation.
            note.write(TEXT.into()).once("write").await.unwrap();
        }
        node.entity::<Note>("ann").pin().await.unwrap();
        serve(runtime, node, beside).await;
    });
}

/// Serves a node while `beside` looks at it.
async fn serve(runtime: &RuntimeHandle, node: Node, beside: impl FnOnce() + Send + 'static) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = Options { listen: any, dashboard: DashboardAddress::Off, ..Options::default() };
    let mut signals = Signals::listen().unwrap();
    let host = Host::open(runtime, node.clone(), options).await.unwrap();
    let served = host.serve_beside(Router::new(), &mut signals, async |_| {
        tokio::task::spawn_blocking(beside).await.unwrap();
    });
    served.await.unwrap();
    node.shutdown().await;
}

/// Checks what each reading command says, beside a node and without one.
fn read(data: &Path, place: &str) {
    assert_eq!(said(data, &["list"]), "note\t5\n");
    let listed = lines(&said(data, &["list", "note", "--json"]));
    let mut keys = KEYS;
    keys.sort_unstable();
    assert!(listed.iter().map(|own| own["key"].as_str().unwrap()).eq(keys), "{listed:?}");
    let parked = lines(&said(data, &["list", "note", "--with", "parked", "--json"]));
    assert_eq!(parked.len(), KEYS.len());
    assert_eq!(said(data, &["list", "note", "--with", "waiting"]), "");
    assert_eq!(said(data, &["list", "note", "--prefix", "an"]).lines().count(), 1);
    assert_eq!(said(data, &["list", "note", "--after", "ann", "--limit", "1"]).lines().count(), 1);
    for key in KEYS {
        let key = serde_json::to_string(key).unwrap();
        let of = |command| said(data, &[command, "--json-keys", "note", &key]);
        let shown = of("show");
        assert!(shown.contains(&format!(": {place}")), "{shown}");
        assert!(shown.contains(&format!("state         {{\"text\": {TEXT:?}}}")), "{shown}");
        assert!(shown.contains("parked        2\nreminders     1\nreplies       1\n"), "{shown}");
        assert!(shown.ends_with("cell\tmarks\tlength\t58\n"), "{shown}");
        let inbox = of("inbox");
        assert_eq!(inbox.lines().count(), 2, "{inbox}");
        assert!(
            inbox.starts_with("parked\t") && inbox.contains("\tcheck\t{\"id\": 1}\tattempts 1, 2")
        );
        assert!(inbox.contains("out of <paper>") && inbox.contains("entity.rs:"), "{inbox}");
        let reminders = of("reminders");
        assert!(reminders.starts_with("late\t2") && reminders.ends_with("\tcheck\t{\"id\": 7}\n"));
        assert_eq!(of("steps"), "");
        let export = lines(&of("export"));
        assert_eq!(export.last().unwrap()["end"].as_u64(), Some(export.len() as u64 - 2));
    }
    for command in ["show", "inbox", "reminders", "steps", "export"] {
        let no_kind = complaint(1, data, &[command, "notes", "ann"]);
        assert!(no_kind.contains("no entities of the kind \"notes\""), "{no_kind}");
        let no_key = complaint(1, data, &[command, "note", ""]);
        assert!(no_key.contains("key"), "{no_key}");
        let no_json = complaint(1, data, &[command, "--json-keys", "note", "ann"]);
        assert!(no_json.contains("no JSON string"), "{no_json}");
    }
    for command in ["show", "export"] {
        let nothing = "throng: nothing is stored of the note \"nobody\"\n";
        assert_eq!(complaint(1, data, &[command, "note", "nobody"]), nothing);
    }
    assert_eq!(said(data, &["inbox", "note", "nobody"]), "");
}

#[test]
fn entities_are_shown_and_changed_beside_a_node_and_without_one() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_owned();
    with_node(&data.clone(), move || {
        read(&data, "live");
        let numbers = lines(&said(&data, &["inbox", "note", "ann", "--json"]));
        let [first, second] =
            [0, 1].map(|at: usize| numbers[at]["message"]["sequence"].to_string());
        assert_eq!(
            said(&data, &["retry", "note", "ann", &first]),
            format!("to be handled: {first}\n")
        );
        assert_eq!(said(&data, &["skip", "note", "ann", &second]), format!("skipped: {second}\n"));
        let again = complaint(1, &data, &["skip", "note", "ann", &second]);
        assert_eq!(again, format!("throng: the note \"ann\" has no message {second}\n"));
        let no_kind = complaint(1, &data, &["retry", "notes", "ann", "1"]);
        assert!(no_kind.contains("no entities of the kind"), "{no_kind}");
        assert!(complaint(2, &data, &["retry", "note", "ann", "x"]).contains("invalid"));
        assert_eq!(said(&data, &["forget", "note", "ann"]), "forgotten: note ann\n");
        let nothing = "throng: nothing is stored of the note \"nobody\"\n";
        assert_eq!(complaint(1, &data, &["forget", "note", "nobody"]), nothing);
        // A store that a node uses is only read.
        let file = data.join("export");
        let export = said(&data, &["export", "note", "--", "-ä/.."]);
        fs::write(&file, export).unwrap();
        let in_use = complaint(1, &data, &["import", file.to_str().unwrap(), "--key", "new"]);
        assert!(in_use.contains("in use"), "{in_use}");
    });
}

#[test]
fn a_stopped_node_is_read_and_written_and_a_wrong_place_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    with_node(&data.clone(), || ());
    read(&data, "stored");
    for command in ["retry", "skip"] {
        let stopped = complaint(1, &data, &[command, "note", "ann", "1"]);
        assert!(stopped.contains("no node is running"), "{stopped}");
    }
    let socket = directory.path().join("nothing.sock");
    let socket = socket.to_str().unwrap();
    let wrong = complaint(1, &data, &["list", "--socket", socket]);
    assert!(wrong.contains("no node is running"), "{wrong}");
    fs::write(socket, "no socket").unwrap();
    assert!(complaint(1, &data, &["list", "--socket", socket]).starts_with("throng: "));
    let nowhere = directory.path().join("nowhere");
    assert!(complaint(1, &nowhere, &["list"]).contains("there is no store in"));
    assert_eq!(said(&data, &["forget", "note", "ann"]), "forgotten: note ann\n");
    assert_eq!(said(&data, &["list"]), "note\t4\n");

    // A store of another program, and of a later version.
    let other = directory.path().join("other");
    let store = Store::open(&other).unwrap();
    let table = store.default_database::<Bytes, Bytes>();
    table.put(b"other", b"value").wait().unwrap();
    drop((table, store));
    assert_eq!(said(&other, &["list"]), "");
    let store = Store::open(&other).unwrap();
    let batch = Batch::new().put(&store.default_database::<Bytes, Bytes>(), b"L", &[9, 0]);
    store.write(batch).wait().unwrap();
    drop(store);
    assert!(complaint(1, &other, &["list"]).contains("layout 9"));
}

#[test]
fn an_export_is_imported_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (data, to, file) = (path("data"), path("to"), path("export.json"));
    with_node(&data.clone(), || ());
    drop(Store::open(&to).unwrap());
    let file_name = file.to_str().unwrap();
    for key in KEYS {
        let key = serde_json::to_string(key).unwrap();
        let export = said(&data, &["export", "--json-keys", "note", &key]);
        for cut in [0, 1, export.lines().count() / 2, export.lines().count() - 1] {
            let cut: String = export.lines().take(cut).flat_map(|line| [line, "\n"]).collect();
            fs::write(&file, cut).unwrap();
            let refused = complaint(1, &to, &["import", file_name]);
            assert!(refused.contains("ends before its last line"), "{refused}");
        }
        fs::write(&file, export.replacen("\"table\"", "\"stable\"", 1)).unwrap();
        assert!(complaint(1, &to, &["import", file_name]).contains("line 2 of"));
        fs::write(&file, &export).unwrap();
        assert!(said(&to, &["import", file_name]).starts_with("imported: note "));
        assert!(complaint(1, &to, &["import", file_name]).contains("is stored already"));
        assert_eq!(said(&to, &["export", "--json-keys", "note", &key]), export);
    }
    assert!(complaint(1, &to, &["import", path("none").to_str().unwrap()]).contains("cannot read"));
    fs::write(&file, said(&data, &["export", "note", "ann"])).unwrap();
    said(&to, &["import", file_name, "--key", "ann's"]);
    assert!(said(&to, &["show", "note", "ann's"]).contains("parked        2"));
}

#[test]
fn an_entity_is_restored_beside_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (data, backup) = (path("data"), path("backup"));
    with_node(&data.clone(), || ());
    drop(Store::options().keep_log(true).open(&data).unwrap());
    let copied = Command::new(env!("CARGO_BIN_EXE_throng"))
        .args(["store", "backup"])
        .args([&data, &backup])
        .output();
    assert!(copied.unwrap().status.success());
    let (backup, log) = (backup.to_str().unwrap(), data.join("log"));
    let log = log.to_str().unwrap();
    said(&data, &["forget", "note", "ann"]);
    let told = said(&data, &["restore", backup, "note", "ann", "ann (old)"]);
    assert!(told.starts_with("imported: note ann (old), "), "{told}");
    let copy = said(&data, &["show", "note", "ann (old)"]);
    assert!(copy.contains(TEXT) && copy.contains("parked        0\nreminders     0\n"), "{copy}");
    said(&data, &["restore", backup, "note", "ann", "ann", "--all"]);
    assert!(said(&data, &["show", "note", "ann"]).contains("pinned"));
    let again = complaint(1, &data, &["restore", backup, "note", "ann", "ann"]);
    assert!(again.contains("is stored already"), "{again}");
    let later = said(&data, &["restore", backup, "note", "ann (old)", "again", "--log-dir", log]);
    assert!(later.starts_with("imported: note again"), "{later}");
    let early =
        ["restore", backup, "note", "ann", "b", "--log-dir", log, "--at", "2026-01-01T00:00:00Z"];
    assert!(complaint(1, &data, &early).contains("the backup was made later"));
    assert!(
        complaint(2, &data, &["restore", backup, "note", "ann", "b", "--at", "7"])
            .contains("--log")
    );
    let left = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 2, "the data and the backup");
}

#[test]
fn a_damaged_entity_is_listed_exported_and_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    with_node(data, || ());
    let file = data.join("data.mdb");
    let mut bytes = fs::read(&file).unwrap();
    let places = bytes.windows(TEXT.len()).enumerate();
    let places = places.filter(|(_, bytes)| *bytes == TEXT.as_bytes()).map(|(at, _)| at);
    for at in places.collect::<Vec<_>>() {
        bytes[at] = b't';
    }
    fs::write(&file, &bytes).unwrap();
    let damaged = said(data, &["list", "note", "--damaged", "--prefix", "ann"]);
    assert!(
        damaged.starts_with("ann\tstored\t") && damaged.contains("wrong checksum"),
        "{damaged}"
    );
    assert!(said(data, &["show", "note", "ann"]).contains("unreadable: "));
    let refused = complaint(1, data, &["export", "note", "ann"]);
    assert!(refused.contains("--damaged"), "{refused}");
    let left = said(data, &["export", "--damaged", "note", "ann"]);
    let text: String =
        TEXT.replacen('T', "t", 1).bytes().map(|byte| format!("{byte:02x}")).collect();
    assert!(left.contains(&text), "{left}");
    assert_eq!(said(data, &["forget", "note", "ann"]), "forgotten: note ann\n");
    assert_eq!(said(data, &["list"]), "note\t4\n");
}

/// Sends letters, once the post office is open.
struct Post {
    is_open: Arc<AtomicBool>,
}

impl Worker for Post {
    const QUEUE: &'static str = "post";
    type Job = String;

    async fn run(&self, _: &Attempt, letter: String) -> Result<(), JobError> {
        match self.is_open.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(JobError::discard(format!("no stamp on <{letter}>\u{1b}[2J"))),
        }
    }
}

#[test]
fn dead_jobs_of_a_queue_are_shown_retried_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_owned();
    assert!(complaint(1, &data.join("nowhere"), &["queue", "list"]).contains("there is no store"));
    let runtime = Runtime::builder().workers(2).start().unwrap();
    runtime.block_on(async |runtime| {
        let node = Node::options(&data).open(runtime).unwrap();
        let is_open = Arc::new(AtomicBool::new(false));
        let post = Post { is_open: is_open.clone() };
        node.run_queues(Queues::new().with(post, QueueOptions::concurrency(2)));
        let queue = node.queue::<Post>();
        for (letter, priority) in [("ann", 1), ("bob", 2), ("cem", 3)] {
            queue.push(Job::new(letter.to_owned()).priority(priority)).await.unwrap();
        }
        while queue.stat().await.unwrap().dead < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let data = data.clone();
        let beside = move || {
            let queue = |words: &[&str]| said(&data, &[&["queue"], words].concat());
            assert_eq!(queue(&["list"]), "post\truns\tready 0\tlater 0\tdead 3\n");
            let dead = lines(&queue(&["jobs", "post", "--json"]));
            let ids: Vec<String> = dead.iter().map(|own| own["id"].to_string()).collect();
            let shown = queue(&["jobs", "post", "--limit", "1"]);
            assert!(shown.starts_with(&format!("{}\t\"ann\"\tfailures 1: ", ids[0])), "{shown}");
            assert!(shown.contains("no stamp on <ann>") && shown.lines().count() == 1, "{shown}");
            let remove = |id: &str| ["queue", "remove", "post", id].map(str::to_owned);
            let removed = queue(&["remove", "post", &ids[1]]);
            assert_eq!(removed, format!("remove: {}\n", ids[1]));
            let again = remove(&ids[1]);
            let again = complaint(1, &data, &again.each_ref().map(String::as_str));
            assert!(again.contains(&format!("no job {} to remove", ids[1])), "{again}");
            assert_eq!(queue(&["pause", "post"]), "paused: post\n");
            assert_eq!(queue(&["retry", "post", "--all-dead"]).lines().count(), 2);
            assert_eq!(queue(&["list"]), "post\tpaused\tready 2\tlater 0\tdead 0\n");
            assert_eq!(queue(&["jobs", "post", "--state", "ready"]).lines().count(), 2);
            for unknown in [&["jobs", "past"][..], &["pause", "past"], &["resume", "past"]] {
                let words = [&["queue"], unknown].concat();
                assert!(complaint(1, &data, &words).contains("no queue \"past\""));
            }
            is_open.store(true, Ordering::Relaxed);
            assert_eq!(queue(&["resume", "post"]), "resumed: post\n");
            while queue(&["list"]) != "post\truns\tready 0\tlater 0\tdead 0\n" {}
        };
        serve(runtime, node, beside).await;
    });
    drop(runtime);
    assert_eq!(said(&data, &["queue", "list"]), "post\truns\tready 0\tlater 0\tdead 0\n");
    assert!(complaint(1, &data, &["queue", "pause", "post"]).contains("no node is running"));
}
