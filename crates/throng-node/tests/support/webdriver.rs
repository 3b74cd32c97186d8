//! A browser under remote control, by the WebDriver standard, for the tests of every package with pages.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A chromedriver process; killed when dropped.
pub(crate) struct Driver {
    child: Child,
    address: String,
    /// Kept open, so that the driver does not end for lack of a reader.
    _output: BufReader<ChildStdout>,
}

impl Driver {
    /// Starts a driver on a free port.
    pub(crate) fn start() -> Driver {
        // It wants the same port of IPv4 as of IPv6, which another program may have.
        (0..10).find_map(|_| Driver::try_start()).expect("chromedriver starts")
    }

    fn try_start() -> Option<Driver> {
        let mut child = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("chromedriver is on the path");
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.by_ref().lines().map_while(Result::ok);
        let Some(started) = lines.find(|line| line.contains("successfully on port ")) else {
            child.wait().unwrap();
            return None;
        };
        let port = started.split("on port ").nth(1).unwrap().trim_end_matches('.');
        Some(Driver { child, address: format!("127.0.0.1:{port}"), _output: output })
    }

    /// Opens a browser with its profile in `profile`.
    pub(crate) async fn open(&self, profile: &str) -> Browser {
        let arguments = [
            "--headless",
            "--no-sandbox", // the tests may run as root
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &format!("--user-data-dir={profile}"),
        ];
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "acceptInsecureCerts": true, // those of nodes with TLS
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "implicit": 10_000 }, // finding an element waits for it
        } } });
        // A browser that draws no frame never answers to some commands.
        let client = reqwest::Client::builder().timeout(Duration::from_secs(60)).build().unwrap();
        let sessions = format!("http://{}/session", self.address);
        let opened = value(client.post(&sessions).json(&capabilities)).await;
        let session = opened["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}"));
        Browser { session: format!("{sessions}/{session}"), client }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a command to the driver and returns its value.
async fn value(request: reqwest::RequestBuilder) -> Value {
    let sent = request.send().await;
    let response = sent.unwrap_or_else(|error| panic!("the browser does not answer: {error:?}"));
    let (status, mut body) = (response.status(), response.json::<Value>().await.unwrap());
    assert_eq!(status, 200, "{body}");
    body["value"].take()
}

/// Session of a browser.
pub(crate) struct Browser {
    client: reqwest::Client,
    /// Address of the session.
    session: String,
}

impl Browser {
    pub(crate) async fn command(&self, path: &str, body: Value) -> Value {
        value(self.client.post(format!("{}{path}", self.session)).json(&body)).await
    }

    /// Returns the handle of the current tab.
    pub(crate) async fn tab(&self) -> Value {
        value(self.client.get(format!("{}/window", self.session))).await
    }

    /// Returns the path of the element that `selector` finds.
    async fn element(&self, selector: &str) -> String {
        let query = json!({ "using": "css selector", "value": selector });
        let found = self.command("/element", query).await;
        let id = found.as_object().and_then(|found| found.values().next()).unwrap();
        format!("/element/{}", id.as_str().unwrap())
    }

    pub(crate) async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        self.command(&format!("{element}/click"), json!({})).await;
    }

    /// Clears a field and types `text` into it.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.command(&format!("{element}/clear"), json!({})).await;
        self.command(&format!("{element}/value"), json!({ "text": text })).await;
    }

    pub(crate) async fn run(&self, script: &str) -> Value {
        self.command("/execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Waits until `text` is visible in the element.
    pub(crate) async fn wait_for_text(&self, selector: &str, text: &str) {
        let script = format!("return document.querySelector('{selector}')?.innerText");
        let mut seen = Value::Null;
        for _ in 0..600 {
            seen = self.run(&script).await;
            if seen.as_str().is_some_and(|seen| seen.contains(text)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{selector} never said {text:?}, but {seen}");
    }

    /// Waits until a script returns true.
    pub(crate) async fn wait_until(&self, script: &str) {
        for _ in 0..600 {
            if self.run(script).await == true {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{script} was never true");
    }

    /// Makes timers that are set from here on run `factor` times as fast, and records the texts of an element.
    pub(crate) async fn hurry_and_record(&self, factor: u32, selector: &str) {
        let script = format!(
            "const set = setTimeout;\
             window.setTimeout = (run, time) => set(run, time / {factor});\
             window.recorded = [];\
             const element = document.querySelector('{selector}');\
             new MutationObserver(() => recorded.push(element.textContent))\
               .observe(element, {{ childList: true, characterData: true, subtree: true }});"
        );
        self.run(&script).await;
    }

    /// Waits until the recorded texts have one that contains `text`, followed by `next`, and forgets them.
    pub(crate) async fn wait_for_record(&self, text: &str, next: &str) {
        let script = format!(
            "const at = recorded.findIndex((each) => each.includes('{text}'));\
             const is = at >= 0 && recorded.slice(at).includes('{next}');\
             if (is) recorded.length = 0;\
             return is"
        );
        self.wait_until(&script).await;
    }

    /// Runs a command of Chromium's own protocol.
    pub(crate) async fn chromium(&self, command: &str, parameters: Value) -> Value {
        self.command("/goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await
    }

    /// Returns the errors and warnings in the console since the last time.
    pub(crate) async fn console(&self) -> Vec<String> {
        let entries = self.command("/se/log", json!({ "type": "browser" })).await;
        let entries = entries.as_array().unwrap().iter();
        let bad = entries.filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING");
        bad.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) async fn close(self) {
        value(self.client.delete(&self.session)).await;
    }
}
