//! Two people with a browser each: posts and rooms as they happen, across a kill of the node.

use std::time::Duration;

use serde_json::json;

use super::{HARM, assert_unharmed, click_now, go, sign_up, sign_up_at, texts};
use crate::harness::{Node, PASSWORD, serve};
use crate::line::Line;
use crate::webdriver::{Browser, Driver};

#[tokio::test]
#[ignore = "needs chromium and chromedriver"]
async fn two_people_follow_and_talk_while_the_node_is_killed() {
    let data = tempfile::tempdir().unwrap();
    let profiles = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let node = Node::start(data.path(), &[]);
    let driver = Driver::start();
    let alice = driver.open(profiles[0].path().to_str().unwrap()).await;
    let bob = driver.open(profiles[1].path().to_str().unwrap()).await;
    sign_up(&alice, &node, "alice").await;
    sign_up(&bob, &node, "bob").await;
    for browser in [&alice, &bob] {
        // A reload would lose this mark.
        browser.run("window.isSame = true").await;
    }

    posts_arrive(&alice, &bob, &node).await;
    talk(&alice, &bob).await;
    lost_answers_and_news(&alice, &bob).await;
    for browser in [&alice, &bob] {
        assert_eq!(browser.console().await, Vec::<String>::new());
    }

    // Killed, and started again under the same address.
    let address = node.address.clone();
    node.signal("KILL").await;
    node.wait();
    for browser in [&alice, &bob] {
        browser.wait_for_text("#connection", "Reconnecting").await;
    }
    say(&alice, "written while the node was down").await;
    say(&alice, "and another").await;
    alice.wait_for_text("#waiting", "and another").await;
    let node = Node::spawn(serve(data.path(), &["--listen", &address]));
    let expected = [
        HARM,
        "hello bob",
        "its answer is lost",
        "unseen",
        "seen",
        "written while the node was down",
        "and another",
    ];
    for browser in [&alice, &bob] {
        browser.wait_for_text("#connection", "Live").await;
        browser.wait_for_text("#messages", "and another").await;
        browser.wait_until("return document.querySelectorAll('#waiting li').length === 0").await;
        assert_eq!(texts(browser, "#messages .text").await, expected, "each once and in order");
    }
    say(&bob, "after the kill").await;
    for browser in [&alice, &bob] {
        browser.wait_for_text("#messages", "after the kill").await;
        assert_eq!(texts(browser, "#messages .text").await.len(), expected.len() + 1);
        browser.wait_for_text("#room-facts", "2 here now").await;
        assert_eq!(browser.run("return window.isSame").await, true, "the page was loaded again");
        assert_unharmed(browser).await;
        // The browser itself reports lost connections.
        let console = browser.console().await;
        let bad = console
            .iter()
            .filter(|line| !line.contains("WebSocket") && !line.contains("net::ERR_"));
        assert_eq!(bad.count(), 0, "{console:?}");
    }
    posts_are_still_live(&alice, &bob).await;
    for_you_has_posts_of_interests(&alice, &bob).await;
    refusals_are_sentences(&bob).await;

    // A user that logs out everywhere is logged out here, too.
    let client = node.client();
    let token = client.log_in("alice", PASSWORD).await.token();
    assert_eq!(client.delete("/api/v1/sessions", &token).await.status, 204);
    alice.wait_for_text("#entry", "Your session has ended.").await;
    alice.close().await;
    bob.close().await;
    node.client().assert_healthy().await;
}

/// Writes a message into the open room.
async fn say(browser: &Browser, text: &str) {
    browser.fill("#message", text).await;
    browser.click("#say .primary").await;
}

async fn post(browser: &Browser, text: &str) {
    browser.fill("#text", text).await;
    browser.click("#write .primary").await;
    browser.wait_for_text("#posts", text).await;
}

/// Follows by the profile; then posts come and go without a reload, and wait while the reader is further down.
async fn posts_arrive(alice: &Browser, bob: &Browser, node: &Node) {
    go(alice, "#/u/bob").await;
    alice.click("main [data-follow=bob]").await;
    alice.wait_for_text("#following", "bob").await;
    go(alice, "#/").await;
    alice.wait_for_text("#feed", "Nothing here yet").await;
    post(bob, HARM).await;
    alice.wait_for_text("#posts", HARM).await;
    post(bob, "soon gone").await;
    alice.wait_for_text("#posts", "soon gone").await;
    click_now(bob, "#posts li:first-child .tools button:last-child").await;
    bob.click("#confirm-yes").await;
    alice
        .wait_until("return !document.querySelector('#posts').textContent.includes('soon gone')")
        .await;

    let token = bob.run("return JSON.parse(localStorage.getItem('throng.session')).token").await;
    for number in 0..15 {
        let text = format!("number {number}\n\n\n\nand more");
        node.client().publish(token.as_str().unwrap(), &text).await;
    }
    alice.wait_for_text("#posts", "number 14").await;
    alice.run("scrollTo(0, 600)").await;
    post(bob, "above the reader").await;
    alice.wait_for_text("#new-posts", "1 new post").await;
    assert!(!texts(alice, "#posts .text").await.contains(&"above the reader".to_owned()));
    alice.click("#new-posts").await;
    alice
        .wait_until(
            "return document.querySelector('#posts .text').textContent === 'above the reader'",
        )
        .await;
    assert_unharmed(alice).await;
}

async fn posts_are_still_live(alice: &Browser, bob: &Browser) {
    go(alice, "#/").await;
    alice.wait_for_text("#posts", "above the reader").await;
    go(bob, "#/").await;
    bob.wait_for_text("#posts", "above the reader").await;
    post(bob, "live again").await;
    alice.wait_for_text("#posts", "live again").await;
    let posts = texts(alice, "#posts .text").await;
    assert_eq!(posts.iter().filter(|text| *text == "live again").count(), 1);
}

/// Creates a room, joins it, and talks.
async fn talk(alice: &Browser, bob: &Browser) {
    go(alice, "#/rooms").await;
    alice.fill("#room-name", "Not a name").await;
    alice.click("#create-room .primary").await;
    alice.wait_for_text("#room-problem", "lower-case letters").await;
    alice.fill("#room-name", "lounge").await;
    alice.click("#create-room .primary").await;
    alice.wait_for_text("#room-facts", "1 here now").await;
    go(bob, "#/rooms").await;
    bob.click("#all-rooms a").await;
    bob.click("#join-room").await;
    for browser in [alice, bob] {
        browser.wait_for_text("#room-facts", "2 here now").await;
    }
    bob.fill("#message", HARM).await;
    alice.wait_for_text("#typing", "bob is typing").await;
    bob.click("#say .primary").await;
    alice.wait_for_text("#messages", HARM).await;
    say(alice, "hello bob").await;
    for browser in [alice, bob] {
        browser.wait_for_text("#messages", "hello bob").await;
        assert_eq!(texts(browser, "#messages .text").await, [HARM, "hello bob"]);
        assert_unharmed(browser).await;
    }
    // The room keeps its messages while another view is shown, and gets those that it has missed.
    go(bob, "#/").await;
    alice.wait_for_text("#room-facts", "1 here now").await;
    go(bob, "#/rooms/lounge").await;
    bob.wait_for_text("#room-facts", "2 here now").await;
    assert_eq!(texts(bob, "#messages .text").await.len(), 2);
}

/// Loses the connection after a message was sent and before its answer, and loses news in the page.
async fn lost_answers_and_news(alice: &Browser, bob: &Browser) {
    let lose_answer = "const send = WebSocket.prototype.send;\
                       WebSocket.prototype.send = function (text) {\
                         send.call(this, text);\
                         if (JSON.parse(text).type !== 'say') return;\
                         WebSocket.prototype.send = send;\
                         window.isLost = true;\
                         this.close();\
                       };";
    alice.run(lose_answer).await;
    say(alice, "its answer is lost").await;
    alice.wait_until("return window.isLost === true").await;
    for browser in [alice, bob] {
        browser.wait_for_text("#messages", "its answer is lost").await;
    }
    alice.wait_until("return document.querySelectorAll('#waiting li').length === 0").await;

    let lose_news = "const parse = JSON.parse;\
                     JSON.parse = (text) => {\
                       const message = parse(text);\
                       if (message?.type !== 'said') return message;\
                       JSON.parse = parse;\
                       return { type: 'lost' };\
                     };";
    alice.run(lose_news).await;
    say(bob, "unseen").await;
    bob.wait_for_text("#messages", "unseen").await;
    say(bob, "seen").await;
    let expected = [HARM, "hello bob", "its answer is lost", "unseen", "seen"];
    for browser in [alice, bob] {
        browser.wait_for_text("#messages", "seen").await;
        browser.wait_until("return document.querySelectorAll('#messages li').length >= 5").await;
        assert_eq!(texts(browser, "#messages .text").await, expected);
    }
}

/// Chooses an interest, and reads a post of an author whom the reader does not follow.
async fn for_you_has_posts_of_interests(alice: &Browser, bob: &Browser) {
    go(alice, "#/").await;
    post(alice, "learning #rust today").await;
    go(bob, "#/for-you/rust").await;
    bob.wait_for_text("#feed .interests", "#rust").await;
    bob.click("#feed .interests .chip").await;
    bob.wait_until("return document.querySelector('.interests [aria-pressed=true]') !== null")
        .await;
    // A post takes part a moment after it was acknowledged, and a visit keeps what it began with.
    let mut attempts = 0;
    loop {
        go(bob, "#/").await;
        go(bob, "#/for-you").await;
        bob.wait_for_text("#feed .interests", "#rust").await;
        if texts(bob, "#posts .text").await.contains(&"learning #rust today".to_owned()) {
            break;
        }
        attempts += 1;
        assert!(attempts < 100, "the post never came");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bob.wait_for_text("#posts", "Interest: #rust").await;
    go(bob, "#/").await;
}

/// Answers requests of the page in the place of the server, and expects its sentences.
async fn refusals_are_sentences(browser: &Browser) {
    let answer = |status: u16, headers: &str, body: &str| {
        format!(
            "window.asked ??= fetch; window.fetch = async () => new Response(JSON.stringify({body}), {{ status: {status}, headers: {headers} }})"
        )
    };
    browser.run(&answer(429, "{ 'retry-after': '30' }", "{ detail: 'too many posts' }")).await;
    browser.fill("#text", "too much").await;
    browser.click("#write .primary").await;
    browser.wait_for_text("#text-problem", "Too many posts. Try again in 30 seconds.").await;
    assert_eq!(browser.run("return document.querySelector('#text').value").await, "too much");

    browser.run(&answer(404, "{}", "{}")).await;
    go(browser, "#/for-you").await;
    browser.wait_for_text("#feed", "This server does not choose posts for you.").await;

    let page = format!(
        "{{ posts: [{{ id: '7', author: 'ada', text: {}, time: 0, likes: 3, reason: 'tag:rust' }}],\
           next_cursor: 'more', tags: ['rust'] }}",
        json!(HARM)
    );
    browser.run(&answer(200, "{}", &page)).await;
    go(browser, "#/for-you/rust").await;
    browser.wait_for_text("#posts", "#rust").await;
    browser.wait_for_text("#posts", HARM).await;
    browser.wait_for_text("#feed .interests", "#rust").await;
    assert_eq!(texts(browser, ".likes").await, ["3"]);
    browser.run(&answer(410, "{}", "{}")).await;
    browser.click("#feed .more").await;
    browser.wait_for_text("#feed", "Begin again").await;
    browser.run("window.fetch = window.asked").await;
    assert_unharmed(browser).await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver"]
async fn a_line_that_dies_in_silence_is_noticed_and_a_message_arrives_once() {
    let profile = tempfile::tempdir().unwrap();
    let node = Node::fresh(&[]);
    let line = Line::to(&node.address).await;
    let driver = Driver::start();
    let alice = driver.open(profile.path().to_str().unwrap()).await;
    sign_up_at(&alice, &format!("http://{}/", line.address), "alice").await;
    go(&alice, "#/rooms").await;
    alice.fill("#room-name", "lounge").await;
    alice.click("#create-room .primary").await;
    alice.wait_for_text("#room-facts", "1 here now").await;
    say(&alice, "before").await;
    alice.wait_for_text("#messages", "before").await;
    alice.hurry_and_record(8, "#connection-text").await;

    line.die();
    say(&alice, "is anybody there?").await;
    alice.wait_for_record("Reconnecting", "Live").await;
    alice.wait_for_text("#messages", "is anybody there?").await;
    alice.wait_until("return document.querySelectorAll('#waiting li').length === 0").await;
    // Without anything to send, the page notices the silence.
    line.die();
    alice.wait_for_record("Reconnecting", "Live").await;
    say(&alice, "after").await;
    alice.wait_for_text("#messages", "after").await;
    let expected = ["before", "is anybody there?", "after"];
    assert_eq!(texts(&alice, "#messages .text").await, expected);
    let room = node.client().get("/api/v1/rooms/lounge", "").await;
    assert_eq!(room.body["messages"], 3, "{room:?}");
    alice.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver"]
async fn messages_beyond_the_rate_of_a_user_wait_and_are_stored_once_and_in_order() {
    let profile = tempfile::tempdir().unwrap();
    let node = Node::fresh(&["--rate-writes", "4/4s"]);
    let driver = Driver::start();
    let alice = driver.open(profile.path().to_str().unwrap()).await;
    sign_up(&alice, &node, "alice").await;
    go(&alice, "#/rooms").await;
    alice.fill("#room-name", "lounge").await;
    alice.click("#create-room .primary").await;
    alice.wait_for_text("#room-facts", "1 here now").await;
    let say = "const field = document.querySelector('#message');\
               for (let number = 0; number < 8; number++) {\
                 field.value = `number ${number}`;\
                 field.form.requestSubmit();\
               }";
    alice.run(say).await;
    alice.wait_for_text("#messages", "number 7").await;
    alice.wait_until("return document.querySelectorAll('#waiting li').length === 0").await;
    let expected: Vec<String> = (0..8).map(|number| format!("number {number}")).collect();
    assert_eq!(texts(&alice, "#messages .text").await, expected);
    let limited = node.client().metric("throng_rate_limited_total{class=\"writes\"}").await;
    assert!(limited > Some(0.0), "the rate was never reached");
    assert_eq!(alice.console().await, Vec::<String>::new());
    alice.close().await;
}
