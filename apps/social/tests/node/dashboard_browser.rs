//! The dashboard in a real browser, beside a node under load. Leaves screenshots in the target directory.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::Node;
use crate::line::Line;
use crate::looks::{PHONE, axe, expect_accessible, press, save_picture, set_size, set_theme};
use crate::webdriver::{Browser, Driver};

/// Number of clients that keep the node busy.
const CLIENTS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs chromium and chromedriver"]
async fn an_operator_sees_what_the_node_does() {
    let data = tempfile::tempdir().unwrap();
    let profile = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &["--admin-listen", "127.0.0.1:0"]);
    let busy = Arc::new(AtomicBool::new(true));
    let mut load = load(&node, &busy).await;
    let driver = Driver::start();
    let browser = driver.open(profile.path().to_str().unwrap()).await;
    let axe = axe();
    set_size(&browser, (1440, 900)).await;
    set_theme(&browser, "light").await;
    browser.command("/url", json!({ "url": node.dashboard() })).await;
    browser.wait_for_text("#state", "Live").await;
    let hash = browser.run("return location.href").await;
    assert!(!hash.as_str().unwrap().contains("token"), "{hash}");

    // The token survives a reload of the tab.
    browser.command("/refresh", json!({})).await;
    browser.wait_for_text("#state", "Live").await;
    browser.wait_until("return document.querySelectorAll('#panel-top tbody tr').length > 3").await;
    browser.click("#panel-top th[data-by=turns] button").await;
    let points = "const path = document.querySelector('#tile-turns .line').getAttribute('d');\
                  return path !== null && path.split('L').length >= 8";
    browser.wait_until(points).await;
    shoot(&browser, &axe, "light").await;
    set_theme(&browser, "dark").await;
    shoot(&browser, &axe, "dark").await;

    // Users can be told apart, and counted together.
    let rows = "return [...document.querySelectorAll('#panel-top tbody tr .name')].map((name) => name.textContent)";
    browser.fill("#filter", "User/user_0").await;
    browser.wait_until(&format!("{}.join() === 'user/user_0'", rows)).await;
    browser.click("#by-kind").await;
    browser.wait_until(&format!("{}.join() === 'User'", rows)).await;
    shoot(&browser, &axe, "kinds-filtered").await;
    browser.click("#panel-top tbody tr").await;
    browser.wait_until(&format!("{}.length >= {CLIENTS}", rows)).await;
    browser.fill("#filter", "x").await;
    browser.run("document.querySelector('#filter').focus()").await;
    press(&browser, "\u{E003}").await;
    browser.wait_until(&format!("{}.length > 3", rows)).await;

    // A process in full, by the keyboard alone.
    browser.run("document.querySelector('#panel-top tbody tr').focus()").await;
    press(&browser, "\u{E007}").await;
    browser.wait_until("return document.querySelectorAll('#process .big dd').length === 3").await;
    let described = "const [title, pid, state] = ['title', 'pid', 'body'].map((part) =>\
                     document.getElementById(`process-${part}`).innerText);\
                     return title !== '…' && /^[0-9a-f]+$/.test(pid) && state.includes('Mean turn')";
    browser.wait_until(described).await;
    shoot(&browser, &axe, "process-dark").await;
    press(&browser, "\u{E00C}").await;
    browser.wait_until("return !document.querySelector('#process').open").await;
    for tab in ["tree", "kinds", "entities"] {
        browser.click(&format!("#tab-{tab}")).await;
        browser
            .wait_until(&format!(
                "return document.querySelector('#panel-{tab}').textContent.length > 40"
            ))
            .await;
        shoot(&browser, &axe, tab).await;
    }
    browser.click("#tab-top").await;

    set_size(&browser, PHONE).await;
    for theme in ["dark", "light"] {
        set_theme(&browser, theme).await;
        shoot(&browser, &axe, &format!("phone-{theme}")).await;
    }
    busy.store(false, Ordering::Relaxed);
    while load.join_next().await.is_some() {}
    assert_eq!(browser.console().await, Vec::<String>::new());

    agrees_with_metrics(&node, &browser).await;
    shows_any_name_as_text(&browser).await;
    shows_entities(&browser).await;

    // A token that was replaced ends the dashboard, which asks for the next one.
    let output = Command::new(env!("CARGO_BIN_EXE_social"))
        .args(["admin-token", "--admin-listen", "127.0.0.1:0", "--data"])
        .arg(data.path())
        .output()
        .unwrap();
    browser.wait_for_text("#problem", "the admin token was replaced").await;
    browser.fill("#token", "not the token").await;
    browser.click("#login .primary").await;
    browser.wait_for_text("#problem", "This is not the admin token.").await;
    browser.fill("#token", std::str::from_utf8(&output.stdout).unwrap().trim()).await;
    browser.click("#login .primary").await;
    browser.wait_for_text("#state", "Live").await;

    // A lost node is shown, and found again.
    let address = node.dashboard().split('/').nth(2).unwrap().to_owned();
    node.signal("INT").await;
    node.wait();
    browser.wait_for_text("#state", "reconnecting").await;
    let _node = Node::start(data.path(), &["--admin-listen", &address]);
    browser.wait_for_text("#state", "Live").await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver"]
async fn an_operator_is_told_of_a_line_that_dies_in_silence() {
    let profile = tempfile::tempdir().unwrap();
    let node = Node::fresh(&["--admin-listen", "127.0.0.1:0"]);
    let url = node.dashboard();
    let address = url.split('/').nth(2).unwrap();
    let line = Line::to(address).await;
    let driver = Driver::start();
    let browser = driver.open(profile.path().to_str().unwrap()).await;
    browser.command("/url", json!({ "url": url.replace(address, &line.address) })).await;
    browser.wait_for_text("#state", "Live").await;
    browser.hurry_and_record(2, "#state-text").await;
    line.die();
    browser.wait_for_record("No news from the node · reconnecting", "Live").await;
    browser.close().await;
}

/// Expects the counts of the page to be those of `/metrics`, once the node has nothing to do.
async fn agrees_with_metrics(node: &Node, browser: &Browser) {
    for (name, shown) in [
        ("throng_processes", "#tile-processes .digits"),
        ("throng_entities_live", "#entities-legend div:first-child dd"),
        ("throng_store_entries", "#store-facts > div:nth-child(10) span"),
        ("throng_http_request_seconds_count", "#tile-requests .note"),
    ] {
        // The page may be a second behind, and asking for the metrics is a request, too.
        for round in 0.. {
            let expected = node.client().metric(name).await.unwrap() as u64;
            let script = format!("return document.querySelector('{shown}').textContent");
            let seen = browser.run(&script).await.as_str().unwrap().to_owned();
            if seen.contains('k') && close_to(&seen, expected) {
                break;
            }
            let digits: String = seen.chars().filter(char::is_ascii_digit).collect();
            if digits.parse::<u64>().is_ok_and(|seen| seen.abs_diff(expected) <= round + 1) {
                break;
            }
            assert!(round < 200, "{name} is {expected}, but the page says {seen}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Returns whether a number of three digits and `k` is the rounded `expected`.
fn close_to(seen: &str, expected: u64) -> bool {
    let digits = seen.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap();
    digits
        .parse::<f64>()
        .is_ok_and(|thousands| (thousands * 1000.0 / expected as f64 - 1.0).abs() < 0.01)
}

/// Gives every process of the node's answers a name that would do harm as HTML.
async fn shows_any_name_as_text(browser: &Browser) {
    let name =
        "<script>document.title='harmed'</script><img src=x onerror=\"document.title='harmed'\">";
    let rename = format!(
        "const parse = JSON.parse; JSON.parse = (text) => {{ const message = parse(text);\
         for (const process of [...(message.top ?? []), ...(message.tree ?? []), message.info].filter(Boolean))\
         process.names = [{}]; return message; }}",
        json!(name)
    );
    browser.run(&rename).await;
    browser.wait_for_text("#panel-top tbody tr", name).await;
    browser.click("#tab-tree").await;
    browser.wait_for_text("#panel-tree", name).await;
    browser.click("#tab-top").await;
    browser.run("document.querySelector('#panel-top tbody tr').click()").await;
    browser.wait_for_text("#process-title", name).await;
    press(browser, "\u{E00C}").await;
    let count = browser
        .run("return document.querySelectorAll('main script, main img, dialog img').length")
        .await;
    assert_eq!((count, browser.run("return document.title").await), (json!(0), json!("throng")));
}

/// Shows an entity, with texts that would do harm as HTML, and the reason why a message is not retried.
async fn shows_entities(browser: &Browser) {
    let text = "</pre><script>document.title='harmed'</script><img src=x onerror=\"document.title='harmed'\">";
    let choose = "const kind = document.querySelector('#entity-kind'); kind.value = 'user';\
                  const prefix = document.querySelector('#entity-prefix'); prefix.value = 'user_0';\
                  kind.dispatchEvent(new Event('change'))";
    browser.click("#tab-entities").await;
    browser.wait_until("return document.querySelectorAll('#entity-kind option').length > 0").await;
    browser.run(choose).await;
    browser.wait_until("return document.querySelectorAll('#entity-list .link').length === 1").await;
    browser.wait_for_text("#entity-list .link", "user_0").await;
    browser.click("#entity-list .link").await;
    browser.wait_for_text("#entity-state", "{\"").await;
    let store = format!(
        "const parse = JSON.parse; const text = {}; JSON.parse = (line) => {{ const message = parse(line);\
         const entity = message.entity ?? {{}}; const value = {{ version: 0, bytes: 1, text: {{ Ok: text }} }};\
         if (entity.show) entity.show.state = value;\
         if (entity.messages) entity.messages = [{{ sequence: 7, name: text, value, attempts: 1, failed_ms: 0,\
         reason: text, place: text }}]; return message; }}",
        json!(text)
    );
    browser.run(&store).await;
    browser.click("#entity-list .link").await;
    browser.wait_for_text("#entity-state", text).await;
    browser.wait_for_text("#entity td:nth-child(4)", text).await;
    browser.click("#entity .retry").await;
    browser.wait_for_text("#entity-problem", "has no message 7 any more").await;
    let count = browser
        .run("return document.querySelectorAll('#panel-entities script, #panel-entities img').length")
        .await;
    assert_eq!((count, browser.run("return document.title").await), (json!(0), json!("throng")));
}

/// Saves a picture of the page, whole unless it shows a single process, and checks its accessibility.
async fn shoot(browser: &Browser, axe: &str, name: &str) {
    browser.run("scrollTo(0, 0)").await;
    save_picture(browser, "dashboard", name, !name.starts_with("process")).await;
    expect_accessible(browser, axe, name).await;
}

/// Starts clients that post and read until `busy` is false.
async fn load(node: &Node, busy: &Arc<AtomicBool>) -> JoinSet<()> {
    let mut load = JoinSet::new();
    let mut tokens = Vec::new();
    for number in 0..CLIENTS {
        tokens.push(node.client().register(&format!("user_{number}")).await);
    }
    for (number, token) in tokens.into_iter().enumerate() {
        let (client, busy) = (node.client(), busy.clone());
        load.spawn(async move {
            let followed = format!("/api/v1/following/user_{}", (number + 1) % CLIENTS);
            client.put(&followed, &token).await;
            while busy.load(Ordering::Relaxed) {
                client.post("/api/v1/posts", &token, &json!({ "text": "a post" })).await;
                client.get("/api/v1/timeline", &token).await;
            }
        });
    }
    load
}
