//! `throng store`, on stores made for the tests.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use throng_store::{Batch, Bytes, DatabaseOptions, Store, Str, U64};

/// Runs `throng store` with these arguments.
fn store(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throng"));
    command.arg("store").args(words).output().unwrap()
}

/// Returns the standard output of a successful run.
#[track_caller]
fn said(words: &[&str]) -> String {
    let output = store(words);
    assert!(output.status.success(), "{output:?}");
    // Progress is shown only on terminals.
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the standard error of a run that must end with this status.
#[track_caller]
fn complaint(status: i32, words: &[&str]) -> String {
    let output = store(words);
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Creates a store with every kind of content.
fn fill(directory: &Path) {
    let store = Store::open(directory).unwrap();
    let tags = store.database_with::<Str, U64>("tags", &DatabaseOptions::new().duplicates());
    let tags = tags.unwrap();
    let entries = store.default_database::<Bytes, Bytes>();
    let batch = Batch::new()
        .put(&entries, b"a/1", b"one")
        .put(&entries, b"a/2", b"tab\there")
        .put(&entries, b"a/\xff", b"\x00\xff")
        .put(&entries, b"b", b"")
        .put(&tags, "x", &7)
        .put(&tags, "x", &8);
    store.write(batch).wait().unwrap();
}

#[test]
fn a_store_is_described_read_and_walked() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let path = directory.path().to_str().unwrap();

    let text = said(&["stat", path]);
    assert!(text.contains("(default)") && text.contains("several per key"), "{text}");
    let stat = json(&said(&["stat", path, "--json"]));
    assert_eq!(stat["databases"][0]["name"], Value::Null);
    assert_eq!(stat["databases"][0]["entries"], 4);
    assert_eq!(stat["databases"][1]["name"], "tags");
    assert_eq!(stat["databases"][1]["entries"], 2);
    assert_eq!(stat["databases"][1]["duplicates"], true);
    assert!(stat["file_bytes"].as_u64() >= stat["databases"][0]["bytes"].as_u64());

    assert_eq!(said(&["get", path, "a/1"]), "one\n");
    assert_eq!(said(&["get", path, "a/2"]), "tab\\there\n");
    assert_eq!(said(&["get", path, "a/2", "--raw"]), "tab\there\n");
    assert_eq!(said(&["get", path, "a/\\xff"]), "\\x00\\xff\n");
    assert_eq!(said(&["get", path, "612fff", "--hex"]), "00ff\n");
    assert_eq!(store(&["get", path, "a/\\xff", "--raw"]).stdout, b"\x00\xff\n");
    let entry = json(&said(&["get", path, "a/\\xff", "--json"]));
    assert_eq!(entry, json!({ "key": "a/\\xff", "value": "\\x00\\xff" }));
    let values = said(&["get", path, "78", "--database", "tags", "--hex"]);
    assert_eq!(values, "0000000000000007\n0000000000000008\n");
    assert_eq!(complaint(1, &["get", path, "x"]), "throng: there is no key x\n");

    let all = "a/1\tone\na/2\ttab\\there\na/\\xff\t\\x00\\xff\nb\t\n";
    assert_eq!(said(&["scan", path]), all);
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let mut reverse = lines(&said(&["scan", path, "--reverse"]));
    reverse.reverse();
    assert_eq!(reverse, lines(all));
    assert_eq!(said(&["scan", path, "--prefix", "a/", "--limit", "1"]), "a/1\tone\n");
    assert_eq!(said(&["scan", path, "--from", "a/2", "--below", "a/\\xff"]), "a/2\ttab\\there\n");
    assert_eq!(said(&["scan", path, "--limit", "0"]), "");
    let first = said(&["scan", path, "--limit", "1", "--json", "--hex"]);
    assert_eq!(json(&first), json!({ "key": "612f31", "value": "6f6e65" }));

    let file = directory.path().join("dump");
    let file = file.to_str().unwrap();
    assert_eq!(said(&["scan", path, "--output", file]), format!("4 entries in {file}\n"));
    assert_eq!(fs::read_to_string(file).unwrap(), all);
    assert!(complaint(1, &["scan", path, "--output", file]).contains(file));
}

#[test]
fn missing_data_exits_with_1_and_a_usage_error_with_2() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    let path = directory.path().to_str().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let nowhere = empty.path().to_str().unwrap();
    for words in [&["stat", nowhere][..], &["verify", nowhere], &["get", nowhere, "k"]] {
        let complaint = complaint(1, words);
        assert_eq!(complaint, format!("throng: there is no store in {nowhere}\n"));
    }
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0, "none was made");
    let no_database = complaint(1, &["scan", path, "--database", "none"]);
    assert!(no_database.contains("\"none\"") && no_database.contains("tags"), "{no_database}");
    for words in [
        &["get", path][..],
        &["get", path, "\\q"],
        &["get", path, "0g", "--hex"],
        &["get", path, "a", "--hex", "--raw"],
        &["scan", path, "--prefix", "a", "--from", "b"],
        &["stat"],
        &["paint", path],
    ] {
        assert!(complaint(2, words).contains("error: "), "{words:?}");
    }
}

#[test]
fn damage_is_found_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let opened = Store::open(directory.path()).unwrap();
    let entries = opened.default_database::<Bytes, Bytes>();
    let value: [u8; 100] = std::array::from_fn(|index| index as u8);
    let batch = (0..1_000u32)
        .fold(Batch::new(), |batch, key| batch.put(&entries, &key.to_be_bytes(), &value));
    opened.write(batch).wait().unwrap();
    drop((opened, entries));
    assert_eq!(said(&["verify", path]), "sound: 1000 entries verified\n");
    let sound = json(&said(&["verify", path, "--json"]));
    assert_eq!(sound, json!({ "sound": true, "entries": 1000 }));

    let file = directory.path().join("data.mdb");
    let sound = fs::read(&file).unwrap();
    let mut bytes = sound.clone();
    for at in (0..bytes.len() - 100).filter(|at| sound[*at..*at + 100] == value) {
        bytes[at + 50] ^= 1;
    }
    assert_ne!(bytes, sound);
    fs::write(&file, &bytes).unwrap();
    let damage = complaint(1, &["verify", path]);
    assert!(damage.contains("damaged: wrong checksum under the key"), "{damage}");
    let output = store(&["verify", path, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&String::from_utf8(output.stdout).unwrap())["sound"], false);

    // No command maps a file that is cut, which would end it by a signal.
    fs::write(&file, &sound[..8_192]).unwrap();
    let copy = directory.path().join("copy");
    let copy = copy.to_str().unwrap();
    for words in [&["verify", path][..], &["stat", path], &["backup", path, copy]] {
        let damage = complaint(1, words);
        assert!(damage.contains("is damaged: data.mdb is cut"), "{damage}");
    }
}

#[test]
fn a_copy_is_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fill(&data);
    let path = data.to_str().unwrap();
    let copy = directory.path().join("copy");
    let copy = copy.to_str().unwrap();
    let told = json(&said(&["backup", path, copy, "--json"]));
    assert_eq!(told["signing_key"], false, "this is no node's");
    assert_eq!(told["file_bytes"], fs::metadata(Path::new(copy).join("data.mdb")).unwrap().len());
    assert_eq!(said(&["scan", copy]), said(&["scan", path]));
    assert_eq!(said(&["verify", copy]), "sound: 6 entries verified\n");
    assert!(complaint(1, &["backup", path, copy]).contains("cannot write the copy into"));
}

#[test]
fn a_backup_and_a_log_are_restored_up_to_a_position_or_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (data, backup, log) = (path("data"), path("backup"), path("data/log"));
    let kept = Store::options().keep_log(true).open(&data).unwrap();
    let put = |value: &str| kept.default_database::<Str, Str>().put("key", value).wait().unwrap();
    put("in the backup");
    said(&["backup", &data, &backup]);
    put("first");
    let position = kept.snapshot().unwrap().commit().to_string();
    let restore = |to: &str, at: &[&str]| {
        let words = [&["restore", &backup, &log, to], at].concat();
        (json(&said(&[&words[..], &["--json"]].concat())), said(&["get", to, "key"]))
    };
    let (told, value) = restore(&path("latest"), &[]);
    assert_eq!((told["position"].to_string(), &*value), (position.clone(), "first\n"));
    // A second makes the times different as they are printed.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    put("second");
    let time = told["time"].as_str().unwrap();
    assert_eq!(restore(&path("at a time"), &["--at", time]).1, "first\n");
    assert_eq!(restore(&path("at a position"), &["--at", &position]).1, "first\n");
    assert_eq!(restore(&path("at the end"), &[]).1, "second\n");

    let to = path("to");
    let restore = ["restore", &backup, &log, &to, "--at"];
    let refused = |status, at: &str| complaint(status, &[&restore[..], &[at]].concat());
    assert!(refused(2, "yesterday").contains("a time such as 2026-02-28T13:30:00Z"));
    let short = refused(1, "1000");
    assert!(short.contains("the log ends at position 3"), "{short}");
    assert!(refused(1, "0").contains("the backup was made later, at position 1"));
    let later = refused(1, "2026-01-01T00:00:00Z");
    assert!(later.contains("the backup was made later, at 2") && later.contains("older backup"));
    let is_store = complaint(1, &["restore", &backup, &log, &data]);
    assert_eq!(is_store, format!("throng: {data} contains a store already\n"));
    assert!(complaint(1, &["restore", &to, &log, &data]).contains("there is no store"));
}

/// The file is of `mdb_load` of LMDB 0.9.24.
#[cfg(all(target_endian = "little", target_pointer_width = "64"))]
#[test]
fn a_directory_of_lmdb_is_imported_and_other_directories_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (from, to) = (path("from"), path("to"));
    fs::create_dir(&from).unwrap();
    let nothing = complaint(1, &["import", &from, &to]);
    assert_eq!(nothing, format!("throng: there is no `data.mdb` of LMDB in {from}\n"));
    assert!(!Path::new(&to).exists(), "no store was made");

    let fixture = "../throng-store/tests/fixtures/lmdb-0.9.24/data.mdb";
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture);
    fs::copy(fixture, Path::new(&from).join("data.mdb")).unwrap();
    let counts = "(default): 2 entries\nnumbers: 7 entries\ntags: 3 entries\nusers: 3 entries\n";
    assert_eq!(said(&["import", &from, &to]), counts);
    assert_eq!(said(&["get", &to, "about"]), "written by mdb_load of LMDB 0.9.24\n");
    assert_eq!(said(&["get", &to, "x", "--database", "tags"]), "1\n2\n");
    let square =
        said(&["get", &to, "\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00", "--database", "numbers"]);
    assert_eq!(square, "65536\n");
    assert_eq!(said(&["verify", &to]), "sound: 15 entries verified\n");

    let again = complaint(1, &["import", &from, &to]);
    assert_eq!(again, format!("throng: {to} contains a store already\n"));
    let other = path("other");
    let own = complaint(1, &["import", &to, &other]);
    assert_eq!(own, format!("throng: {to} is a store already; copy it by a backup\n"));
    assert!(!Path::new(&other).exists(), "no store was made");
    let imported = json(&said(&["import", &from, &other, "--json"]));
    assert_eq!(imported["databases"][3], json!({ "name": "users", "entries": 3 }));
}

#[test]
fn a_damaged_store_is_salvaged_with_a_list_of_losses() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (data, to) = (path("data"), path("to"));
    assert_eq!(
        complaint(1, &["salvage", &data, &to]),
        format!("throng: there is no store in {data}\n")
    );
    fill(Path::new(&data));
    fs::write(path("data/signing.key"), "damaged").unwrap();
    let whole = store(&["salvage", &data, &to]);
    assert!(whole.status.success(), "{whole:?}");
    let text = String::from_utf8(whole.stdout).unwrap();
    assert!(text.starts_with(&format!("salvaged into {to}: exactly the state at position ")));
    assert!(text.contains("(default)             4             0  with checksums\n"), "{text}");
    assert!(!text.contains("not proved"), "{text}");
    assert_eq!(said(&["scan", &to]), said(&["scan", &data]));
    let is_store = complaint(1, &["salvage", &data, &to]);
    assert_eq!(is_store, format!("throng: {to} contains a store already\n"));
    assert!(complaint(2, &["salvage", &data]).contains("error: "));
    let open = Store::open(&data).unwrap();
    assert!(complaint(1, &["salvage", &data, &path("other")]).contains("is in use"));
    // More values than lines are printed.
    let value: [u8; 100] = std::array::from_fn(|index| index as u8);
    let batch = (0..100u8).fold(Batch::new(), |batch, key| {
        batch.put(&open.default_database::<Bytes, Bytes>(), &[0, key], &value)
    });
    open.write(batch).wait().unwrap();
    drop(open);
    // Both the last commit and the one before have them.
    let open = Store::open(&data).unwrap();
    open.default_database::<Str, Str>().put("z", "").wait().unwrap();
    drop(open);
    let all = said(&["scan", &data, "--from", "a"]);

    fs::remove_dir_all(path("data/log")).unwrap();
    let file = path("data/data.mdb");
    let mut bytes = fs::read(&file).unwrap();
    for at in 0..bytes.len() - 100 {
        if bytes[at..at + 100] == value {
            bytes[at + 50] ^= 1;
        }
    }
    fs::write(&file, bytes).unwrap();
    let refused = complaint(1, &["scan", &data]);
    assert!(refused.contains("`throng store salvage`"), "{refused}");
    let told = store(&["salvage", &data, &path("rest"), "--json"]);
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    let told = json(&String::from_utf8(told.stdout).unwrap());
    let [outcome, entries_lost] = [&told["exact"], &told["databases"][0]["entries_lost"]];
    let losses = told["losses"].as_array().unwrap();
    assert_eq!(
        (outcome, losses[0].as_str()),
        (&json!(false), Some("any later changes: log is missing"))
    );
    assert_eq!((entries_lost, losses.len()), (&json!(100), 101));
    let printed = store(&["salvage", &data, &path("again")]);
    assert_eq!(printed.status.code(), Some(1), "{printed:?}");
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("the rest, up to position"), "{printed}");
    let loss =
        "the default database, key \"\\x00\\x00\": the stored data is damaged: wrong checksum";
    assert!(printed.contains(loss), "{printed}");
    assert!(printed.ends_with("… and 51 more; `--json` lists the first 10,000\n"), "{printed}");
    assert_eq!(said(&["scan", &path("again")]), all);

    // Nothing is left to be read.
    fs::write(&file, [7; 50_000]).unwrap();
    let nothing = complaint(1, &["salvage", &data, &path("nothing")]);
    assert!(nothing.contains("both its meta pages are damaged"), "{nothing}");
}
