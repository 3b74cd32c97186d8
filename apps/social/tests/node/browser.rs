//! The page in a browser: the files that it loads, and (with a real browser) the actions of people.
//!
//! Texts of users appear as they were written, each once, also after the node was killed.

mod accessible;
mod live;
mod places;
mod secure;

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::harness::{Node, PASSWORD};
use crate::looks::press;
use crate::webdriver::{Browser, Driver};

#[tokio::test]
async fn the_page_needs_nothing_from_elsewhere() {
    let (_node, client) = Node::with_client(&[]);
    let page = client.request(Method::GET, "/").send().await.unwrap();
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"));
    let html = page.text().await.unwrap();
    for inline in ["<style", "style=\"", "onclick", "<script>"] {
        assert!(!html.contains(inline), "the policy forbids {inline}");
    }
    let of_files = |link: &String| !link.starts_with("data:") && !link.starts_with('#');
    let mut links: Vec<String> = after_each(&html, &["src=\"", "href=\""]).collect();
    links.retain(of_files);
    let mut at = 0;
    while let Some(link) = links.get(at).cloned() {
        at += 1;
        assert!(link.starts_with("/page/"), "{link} lies elsewhere");
        let answer = client.request(Method::GET, &link).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{link}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers()["content-security-policy"], *policy, "{link}");
        let text = answer.text().await.unwrap();
        for import in after_each(&text, &["from \"", "import \"", "url(", "@import"]) {
            let name = import.strip_prefix("./").unwrap_or_else(|| panic!("{link}: {import}"));
            let import = format!("/page/{name}");
            if !links.contains(&import) {
                links.push(import);
            }
        }
    }
    assert!(links.len() > 10, "{links:?}");
}

/// Returns the text from the end of each of `starts` up to the next quotation mark.
fn after_each(text: &str, starts: &[&str]) -> impl Iterator<Item = String> {
    starts
        .iter()
        .flat_map(|start| text.split(start).skip(1))
        .map(|rest| rest.split('"').next().unwrap().to_owned())
}

/// A text that would do harm if the page took it for HTML.
const HARM: &str = "<img src=x onerror=\"document.title='harmed'\"> & <b>bold</b> <script>document.title='harmed'</script>";

/// Opens the page of a node, and signs up.
async fn sign_up(browser: &Browser, node: &Node, name: &str) {
    sign_up_at(browser, node.url(), name).await;
}

/// Opens the page at `url`, and signs up.
async fn sign_up_at(browser: &Browser, url: &str, name: &str) {
    browser.command("/url", json!({ "url": url })).await;
    enter(browser, "register", name, PASSWORD).await;
    browser.wait_until("return document.querySelector('#posts') !== null").await;
    browser.wait_for_text("#connection", "Live").await;
}

/// Fills in the form before a session, and presses `log-in` or `register`.
async fn enter(browser: &Browser, button: &str, name: &str, password: &str) {
    browser.fill("#name", name).await;
    browser.fill("#password", password).await;
    browser.click(&format!("button[value={button}]")).await;
}

/// Opens the view of a hash, without a reload.
async fn go(browser: &Browser, hash: &str) {
    browser.run(&format!("location.hash = '{hash}'")).await;
}

/// Expects that no text of a user was taken for HTML.
async fn assert_unharmed(browser: &Browser) {
    let title = browser.run("return document.title").await;
    assert!(title.as_str().unwrap().ends_with("· throng"), "{title}");
    let count = "return document.querySelectorAll('main img, main script, main b').length";
    assert_eq!(browser.run(count).await, 0);
}

/// Returns the texts of the elements that a selector finds.
async fn texts(browser: &Browser, selector: &str) -> Vec<String> {
    let script = format!(
        "return [...document.querySelectorAll('{selector}')].map((item) => item.textContent)"
    );
    serde_json::from_value(browser.run(&script).await).unwrap()
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver"]
async fn a_person_registers_posts_follows_and_reads() {
    let profile = tempfile::tempdir().unwrap();
    let node = Node::fresh(&[]);
    let bob = node.client().register("bob").await;
    let posted = node.client().publish(&bob, HARM).await;

    let driver = Driver::start();
    let browser = driver.open(profile.path().to_str().unwrap()).await;
    browser.command("/url", json!({ "url": format!("http://{}/", node.address) })).await;

    // Errors are shown, also to assistive technology: bound to a field, or as an alert.
    browser.click("button[value=register]").await;
    browser.wait_for_text("#name-problem", "Enter your name.").await;
    let field = browser.run("return document.activeElement.getAttribute('aria-invalid')").await;
    assert_eq!(field, "true");
    enter(&browser, "log-in", "alice", "not the password").await;
    browser.wait_for_text("#problem", "The name or the password is wrong.").await;

    browser.fill("#password", PASSWORD).await;
    browser.click("button[value=register]").await;
    browser.wait_for_text("#feed", "Follow people").await;

    let text = "first words\non two lines, <i>not slanted</i>";
    browser.fill("#text", text).await;
    browser.click("#write .primary").await;
    browser.wait_for_text("#posts", "on two lines, <i>not slanted</i>").await;
    browser.wait_for_text("#posts", "alice").await;

    // A search finds a person; the button follows.
    go(&browser, "#/search").await;
    browser.fill("#query", "bo").await;
    browser.wait_for_text("main [role=status]", "1 user,").await;
    browser.click("main [data-follow=bob]").await;
    browser.wait_for_text("#following", "bob").await;
    go(&browser, "#/").await;
    browser.wait_for_text("#posts", "& <b>bold</b>").await;
    assert_unharmed(&browser).await;

    // A like is counted by the author's process, and shown.
    let path = format!("/api/v1/users/bob/posts/{posted}");
    click_now(&browser, "#posts li:last-child .like").await;
    browser
        .wait_until(
            "return document.querySelector('.like[aria-pressed=true] .likes')?.textContent === '1'",
        )
        .await;
    while node.client().get(&path, &bob).await.body["likes"] != 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    // The view survives a reload, and the back button leads to the last one.
    go(&browser, "#/u/bob/followers").await;
    browser.wait_for_text("#followers", "alice").await;
    browser.command("/refresh", json!({})).await;
    browser.wait_for_text("#followers", "alice").await;
    browser.command("/back", json!({})).await;
    browser.wait_for_text("#posts", "& <b>bold</b>").await;

    // Logging out ends the session, and logging in starts another.
    browser.click("#log-out").await;
    enter(&browser, "log-in", "alice", PASSWORD).await;
    browser.wait_for_text("#posts", "& <b>bold</b>").await;
    go(&browser, "#/u/bob").await;
    browser.click("main [data-follow=bob]").await;
    browser.wait_for_text("#notice", "You no longer follow bob.").await;
    go(&browser, "#/").await;
    browser.wait_until("return document.querySelectorAll('#posts li').length === 1").await;

    // The arrow keys move between the tabs.
    browser.run("document.querySelector('#tab-following').focus()").await;
    press(&browser, "\u{E014}").await;
    browser
        .wait_until(
            "return document.activeElement.id === 'tab-for-you' && location.hash === '#/for-you'",
        )
        .await;

    account_is_kept(&browser).await;
    browser.close().await;
    node.client().assert_healthy().await;
}

/// Changes the password of alice, who is logged in, and ends all sessions.
async fn account_is_kept(browser: &Browser) {
    const NEW: &str = "a new password of alice";
    go(browser, "#/u/alice").await;
    browser.click("main a[href='#/account']").await;
    browser.fill("#old", "not the password").await;
    browser.fill("#new", "short").await;
    browser.click("#password-form [type=submit]").await;
    browser.wait_for_text("#new-problem", "Use 8 characters or more.").await;
    browser.fill("#new", NEW).await;
    browser.click("#password-form [type=submit]").await;
    // The session goes on, and so does its socket.
    browser.wait_for_text("#problem", "The current password is wrong.").await;
    browser.wait_for_text("#connection", "Live").await;
    browser.fill("#old", PASSWORD).await;
    browser.click("#password-form [type=submit]").await;
    browser.wait_for_text("#entry", "Your password is changed.").await;
    for (password, answer) in [(PASSWORD, "#problem"), (NEW, "#password-form")] {
        enter(browser, "log-in", "alice", password).await;
        browser
            .wait_until(&format!(
                "return document.querySelector('{answer}')?.textContent.length > 1"
            ))
            .await;
    }
    // The view is still that of the account.
    browser.click("#log-out-everywhere").await;
    browser.click("#confirm-yes").await;
    browser.wait_for_text("#entry", "You are logged out everywhere.").await;
}

/// Clicks an element of a list that the page may replace between two commands.
async fn click_now(browser: &Browser, selector: &str) {
    browser.run(&format!("document.querySelector('{selector}').click()")).await;
}
