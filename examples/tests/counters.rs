//! The program `counters`: the window on a node is there for a program that is none of throng's own.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests, too")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

#[path = "../../crates/throng-node/tests/support/webdriver.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod webdriver;

/// Running program; killed when dropped.
struct Counters {
    child: Child,
    service: String,
    dashboard: String,
}

impl Counters {
    fn start(directory: &Path) -> Counters {
        let listen = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        let mut child = counters(directory).args(listen).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let lines: Vec<String> = lines.take(3).collect();
        let after = |words: &str| {
            let line = lines.iter().find_map(|line| line.strip_prefix(words));
            line.unwrap_or_else(|| panic!("{lines:?}")).split(',').next().unwrap().to_owned()
        };
        Counters { child, service: after("serving "), dashboard: after("dashboard at ") }
    }

    async fn ask(&self, method: reqwest::Method, path: &str) -> (u16, String) {
        let url = format!("{}{path}", self.service);
        let response = reqwest::Client::new().request(method, url).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn add(&self, name: &str) -> String {
        self.ask(reqwest::Method::POST, &format!("add/{name}")).await.1
    }

    fn interrupt(mut self) {
        let kill = format!("kill -INT {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Builds the command of the program, whose data is in `directory`.
fn counters(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counters"));
    command.current_dir(directory).env_remove("THRONG_DATA");
    command
}

#[tokio::test]
async fn a_program_of_its_own_has_metrics_probes_top_and_a_graceful_stop() {
    let directory = tempfile::tempdir().unwrap();
    let program = Counters::start(directory.path());
    assert_eq!([program.add("apples").await, program.add("apples").await], ["1", "2"]);
    for probe in ["livez", "readyz"] {
        assert_eq!(program.ask(reqwest::Method::GET, probe).await, (200, "ok\n".to_owned()));
    }
    let (_, metrics) = program.ask(reqwest::Method::GET, "metrics").await;
    for line in [
        "throng_http_answers_total{route=\"/add/{name}\",status=\"2xx\"} 2\n",
        "throng_entities_live 1\n",
        "throng_store_writable 1\n",
    ] {
        assert!(metrics.contains(line), "{line} is missing: {metrics}");
    }
    let top = counters(directory.path()).args(["top", "--once"]).output().unwrap();
    let top = String::from_utf8(top.stdout).unwrap();
    assert!(top.contains("counter/apples (Counter)"), "{top}");
    program.interrupt();

    let again = Counters::start(directory.path());
    assert_eq!(again.add("apples").await, "3", "what was counted is on disk");
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver"]
async fn a_program_of_its_own_is_seen_in_the_browser() {
    let directory = tempfile::tempdir().unwrap();
    let program = Counters::start(directory.path());
    let profile = tempfile::tempdir().unwrap();
    let driver = webdriver::Driver::start();
    let browser = driver.open(profile.path().to_str().unwrap()).await;
    browser.command("/url", json!({ "url": program.dashboard })).await;
    browser.wait_for_text("#state", "Live").await;
    for name in ["apples", "pears"] {
        assert_eq!(program.add(name).await, "1");
    }
    browser.fill("#filter", "counter/pears").await;
    browser.wait_for_text("#panel-top tbody", "counter/pears").await;
    browser.click("#tab-kinds").await;
    browser.wait_for_text("#panel-kinds", "Counter").await;
    assert_eq!(browser.console().await, Vec::<String>::new());
    program.interrupt();
    browser.wait_for_text("#state", "reconnecting").await;
    tokio::time::timeout(Duration::from_secs(30), browser.close()).await.unwrap();
}
