//! The page in a browser: the resources that it loads, and (with a real browser) the actions of a
//! user.

use reqwest::Method;
use serde_json::json;

use crate::harness::{Node, PASSWORD, serve};
use crate::webdriver::Driver;

#[tokio::test]
async fn the_page_needs_nothing_from_elsewhere() {
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let client = node.client();
    let page = client.request(Method::GET, "/").send().await.unwrap();
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"));
    let html = page.text().await.unwrap();
    let links: Vec<&str> = ["src=\"", "href=\""]
        .iter()
        .flat_map(|attribute| html.split(attribute).skip(1))
        .map(|rest| rest.split('"').next().unwrap())
        .filter(|link| !link.starts_with("data:"))
        .collect();
    assert!(links.len() >= 2, "{links:?}");
    for link in links {
        assert!(link.starts_with('/') && !link.starts_with("//"), "{link} lies elsewhere");
        let answer = client.request(Method::GET, link).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{link}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    }
    for inline in ["<style", "style=\"", "onclick", "<script>"] {
        assert!(!html.contains(inline), "the policy forbids {inline}");
    }
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver"]
async fn a_person_registers_posts_follows_and_reads() {
    let data = tempfile::tempdir().unwrap();
    let profile = tempfile::tempdir().unwrap();
    let node = Node::start(data.path(), &[]);
    let bob = node.client().register("bob").await;
    // This text would do harm if the page took it for HTML.
    let harm = "<img src=x onerror=\"document.title='harmed'\"> & <b>bold</b>";
    let posted = node.client().post("/api/v1/posts", &bob, &json!({ "text": harm })).await;
    assert_eq!(posted.status, 201, "{posted:?}");

    let driver = Driver::start();
    let browser = driver.open(profile.path().to_str().unwrap()).await;
    browser.command("/url", json!({ "url": format!("http://{}/", node.address) })).await;

    // An error is shown, also to assistive technology.
    browser.fill("#name", "alice").await;
    browser.fill("#password", "not the password").await;
    browser.click("button[value=log-in]").await;
    browser.wait_for_text("#notice", "the name or the password is wrong").await;

    browser.fill("#password", PASSWORD).await;
    browser.click("button[value=register]").await;
    browser.wait_for_text("#own-name", "alice").await;

    let text = "first words\non two lines, <i>not slanted</i>";
    browser.fill("#text", text).await;
    browser.click("#write button").await;
    browser.wait_for_text("#posts", "on two lines, <i>not slanted</i>").await;
    browser.wait_for_text("#posts", "alice").await;

    browser.fill("#target", "bob").await;
    browser.click("#follow button").await;
    browser.wait_for_text("#following", "bob").await;
    browser.wait_for_text("#posts", harm).await;
    let title = browser.run("return document.title").await;
    assert_eq!(title, "throng", "a post was taken for HTML");

    // A post comes without a reload, once, and a deleted one goes; also after the node was killed.
    let node = {
        let later = "words that come later";
        let post = json!({ "text": later });
        let posted = node.client().post("/api/v1/posts", &bob, &post).await;
        browser.wait_for_text("#posts", later).await;
        let path = format!("/api/v1/posts/{}", posted.body["id"].as_str().unwrap());
        assert_eq!(node.client().delete(&path, &bob).await.status, 204);
        let gone = "return !document.querySelector('#posts').textContent.includes('come later')";
        browser.wait_until(gone).await;
        let address = node.address.clone();
        node.signal("KILL").await;
        node.wait();
        let node = Node::spawn(serve(data.path(), &["--listen", &address]));
        let again = json!({ "text": "words after the kill" });
        let posted = node.client().post("/api/v1/posts", &bob, &again).await;
        assert_eq!(posted.status, 201, "{posted:?}");
        browser.wait_for_text("#posts", "words after the kill").await;
        let posts = browser.run("return document.querySelectorAll('#posts li').length").await;
        assert_eq!(posts, 2, "bob's posts, each once");
        node
    };

    // The session survives a reload of the tab; logging out ends it, and logging in starts another.
    browser.command("/refresh", json!({})).await;
    browser.wait_for_text("#posts", harm).await;
    browser.click("#log-out").await;
    browser.fill("#name", "alice").await;
    browser.fill("#password", PASSWORD).await;
    browser.click("button[value=log-in]").await;
    browser.wait_for_text("#posts", harm).await;
    browser.click("#following button").await;
    browser.wait_for_text("#notice", "You no longer follow bob.").await;
    let posts = browser.run("return document.querySelectorAll('#posts li').length").await;
    assert_eq!(posts, 0);

    // At a phone's width nothing is cut off, and every field has a label.
    let size = json!({ "width": 360, "height": 740, "x": 0, "y": 0 });
    browser.command("/window/rect", size).await;
    let page = "const page = document.documentElement; return page.scrollWidth <= page.clientWidth";
    assert_eq!(browser.run(page).await, true);
    let unlabelled = "return [...document.querySelectorAll('input, textarea')]\
                      .filter((field) => field.labels.length === 0).map((field) => field.id)";
    assert_eq!(browser.run(unlabelled).await, json!([]));

    browser.close().await;
    node.client().assert_healthy().await;
}
