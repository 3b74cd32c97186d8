//! What a reader keeps: the session in all tabs, the place in a list, each character that was typed.

use reqwest::Method;
use serde_json::{Value, json};

use super::{click_now, enter, go, sign_up, texts};
use crate::harness::{Node, PASSWORD, send};
use crate::webdriver::{Browser, Driver};

async fn switch(browser: &Browser, handle: &Value) {
    browser.command("/window", json!({ "handle": handle })).await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver"]
async fn all_tabs_of_a_browser_share_a_session_from_its_begin_to_its_end() {
    let profile = tempfile::tempdir().unwrap();
    let node = Node::fresh(&[]);
    node.client().register("alice").await;
    let driver = Driver::start();
    let browser = driver.open(profile.path().to_str().unwrap()).await;
    let url = json!({ "url": node.url() });
    browser.command("/url", url.clone()).await;
    browser.wait_for_text("#entry", "Come in").await;
    let first = browser.tab().await;
    let opened = browser.command("/window/new", json!({ "type": "tab" })).await;
    let second = opened["handle"].clone();
    switch(&browser, &second).await;
    browser.command("/url", url).await;
    browser.wait_for_text("#entry", "Come in").await;

    enter(&browser, "log-in", "alice", PASSWORD).await;
    browser.wait_for_text("#connection", "Live").await;
    switch(&browser, &first).await;
    browser.wait_for_text("#connection", "Live").await;
    browser.wait_until("return document.querySelector('#text') !== null").await;
    browser.click("#log-out").await;
    browser.wait_for_text("#entry", "You are logged out.").await;
    switch(&browser, &second).await;
    browser.wait_for_text("#entry", "Come in").await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver"]
async fn a_reader_keeps_the_place_and_a_writer_each_character() {
    let profile = tempfile::tempdir().unwrap();
    let (node, client) = Node::with_client(&[]);
    let bob = client.register("bob").await;
    let linked = "see (https://example.org/a_(b)), or https://example.org/c). #birds";
    let mut newest = String::new();
    for number in 0..44 {
        let text = match number {
            20 => linked.to_owned(),
            _ => format!("number {number}\n\nand more #other"),
        };
        newest = client.publish(&bob, &text).await;
    }
    let driver = Driver::start();
    let alice = driver.open(profile.path().to_str().unwrap()).await;
    sign_up(&alice, &node, "alice").await;
    let token = alice.run("return JSON.parse(localStorage.getItem('throng.session')).token").await;
    let token = token.as_str().unwrap();
    assert_eq!(client.put("/api/v1/following/bob", token).await.status, 204);
    alice.command("/refresh", json!({})).await;

    // Back leads to the same place of the same list.
    alice.wait_for_text("#posts", "number 43").await;
    alice.click("#feed .more").await;
    alice.wait_until("return document.querySelectorAll('#posts > li').length === 40").await;
    alice.run("scrollTo(0, 2000)").await;
    let place = "return [scrollY, document.querySelectorAll('#posts > li').length]";
    let left = alice.run(place).await;
    click_now(&alice, "#posts li:nth-child(20) .name").await;
    alice.wait_for_text("main h1", "bob").await;
    alice.command("/back", json!({})).await;
    alice.wait_until("return document.querySelector('#feed') !== null").await;
    assert_eq!(alice.run(place).await, left);

    // The numbers are asked for when the reader comes back to the window.
    let carol = client.register("carol").await;
    assert_eq!(
        client.put(&format!("/api/v1/users/bob/posts/{newest}/like"), &carol).await.status,
        204
    );
    alice.run("scrollTo(0, 0); dispatchEvent(new Event('focus'))").await;
    alice.wait_until("return document.querySelector('#posts .likes').textContent === '1'").await;

    // Links end where the sentence goes on, and a hashtag leads to its posts alone.
    let links = "return [...document.querySelectorAll('.text a[target]')].map((link) => link.href)";
    assert_eq!(
        alice.run(links).await,
        json!(["https://example.org/a_(b)", "https://example.org/c"])
    );
    click_now(&alice, "#posts .text a[href$=birds]").await;
    alice.wait_until("return document.title.startsWith('#birds')").await;
    alice.wait_for_text("#posts", "see (https").await;
    assert_eq!(texts(&alice, "#posts .text").await, [linked]);

    // A text that is too long is neither cut nor sent.
    go(&alice, "#/").await;
    let paste = "const field = document.querySelector('#text');\
                 field.value = 'x'.repeat(5001);\
                 field.dispatchEvent(new Event('input'))";
    alice.run(paste).await;
    alice.wait_for_text("#text-left", "Remove 1 character.").await;
    alice.click("#write .primary").await;
    alice.wait_for_text("#text-problem", "Remove 1 character.").await;
    assert_eq!(alice.run("return document.querySelector('#text').value.length").await, 5001);

    // A notice covers no field, the owner of a room removes a message, and the account ends with its password.
    go(&alice, "#/rooms").await;
    alice.fill("#room-name", "tea").await;
    alice.click("#create-room .primary").await;
    alice.wait_for_text("#room-facts", "1 here now").await;
    let apart = "const region = document.querySelector('#notice');\
                 region.replaceChildren(document.createElement('p'));\
                 region.firstChild.textContent = 'a notice that stays';\
                 return region.getBoundingClientRect().bottom\
                   <= document.querySelector('#say').getBoundingClientRect().top";
    assert_eq!(alice.run(apart).await, true);
    assert_eq!(client.put("/api/v1/memberships/tea", &bob).await.status, 204);
    let said = json!({ "text": "bad words" });
    assert_eq!(client.post("/api/v1/rooms/tea/messages", &bob, &said).await.status, 201);
    alice.wait_for_text("#messages", "bad words").await;
    alice.run("dispatchEvent(new Event('focus'))").await;
    alice.wait_for_text("#room-facts", "2 members").await;
    click_now(&alice, "#messages .tools button").await;
    alice.click("#confirm-yes").await;
    alice.wait_for_text("#messages", "This message was removed.").await;
    go(&alice, "#/account").await;
    alice.fill("#delete-password", PASSWORD).await;
    alice.click("#delete-form [type=submit]").await;
    alice.click("#confirm-yes").await;
    alice.wait_for_text("#entry", "Your account is deleted.").await;
    assert_eq!(send(client.request(Method::GET, "/api/v1/users/alice")).await.unwrap().status, 404);
    assert_eq!(alice.console().await, Vec::<String>::new());
    alice.close().await;
}
