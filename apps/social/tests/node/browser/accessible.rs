//! Every page, light, dark and on a phone: checked by axe-core, and pictured in the target directory.

use reqwest::Method;
use serde_json::json;

use super::{HARM, go, sign_up};
use crate::harness::{Client, Node};
use crate::looks::{PHONE, axe, expect_accessible, save_picture, set_size, set_theme};
use crate::webdriver::{Browser, Driver};

/// Views by the names of their pictures, each with a text that is there once it is complete.
const VIEWS: [(&str, &str, &str, &str); 10] = [
    ("following", "#/", "#posts", "forgave me"),
    ("for-you", "#/for-you", "#posts", "forgave me"),
    ("profile", "#/u/ngozi", "#posts", "forgave me"),
    ("followers", "#/u/ngozi/followers", "#followers", "reader"),
    ("account", "#/account", "#password-form", "Current password"),
    ("search", "#/search", "main", "gardening"),
    ("rooms", "#/rooms", "#all-rooms", "sourdough"),
    ("room", "#/rooms/gardening", "#messages", "In song."),
    ("room-to-join", "#/rooms/sourdough", "#join-room", "Join"),
    ("not-found", "#/nowhere", "main", "no such page"),
];

#[tokio::test]
#[ignore = "needs chromium and chromedriver"]
async fn every_page_is_accessible() {
    let axe = axe();
    let profile = tempfile::tempdir().unwrap();
    let node = Node::fresh(&[]);
    populate(&node.client()).await;
    let driver = Driver::start();
    let browser = driver.open(profile.path().to_str().unwrap()).await;
    browser.command("/url", json!({ "url": format!("http://{}/", node.address) })).await;
    browser.wait_for_text("#entry", "Sign up").await;
    check(&browser, &axe, "entry").await;

    sign_up(&browser, &node, "reader").await;
    let token =
        browser.run("return JSON.parse(localStorage.getItem('throng.session')).token").await;
    for (name, _) in POSTS {
        let path = format!("/api/v1/following/{name}");
        assert_eq!(node.client().put(&path, token.as_str().unwrap()).await.status, 204);
    }
    let path = "/api/v1/memberships/gardening";
    assert_eq!(node.client().put(path, token.as_str().unwrap()).await.status, 204);
    browser.command("/refresh", json!({})).await;
    for (name, hash, selector, text) in VIEWS {
        go(&browser, hash).await;
        browser.wait_for_text(selector, text).await;
        check(&browser, &axe, name).await;
    }
    browser.close().await;
}

/// Checks a view and takes its pictures, in both themes and on a phone.
async fn check(browser: &Browser, axe: &str, name: &str) {
    for (look, theme, size) in
        [("light", "light", (1280, 860)), ("dark", "dark", (1280, 860)), ("phone", "light", PHONE)]
    {
        set_size(browser, size).await;
        set_theme(browser, theme).await;
        let name = format!("{name}-{look}");
        save_picture(browser, "page", &name, false).await;
        expect_accessible(browser, axe, &name).await;
    }
}

const POSTS: [(&str, &str); 10] = [
    ("oscar_r", "ok"),
    ("viktor", HARM),
    ("leila", "صباح الخير! القهوة جاهزة والنافذة مفتوحة."),
    ("yuki_t", "今朝は霧がすごくて、駅までの道がまるで別の町みたいだった。"),
    ("chloe", "The semicolon is the most honest punctuation; it admits that it is not done."),
    (
        "ana_lu",
        "Three things I learned:\n\n1. The bus always comes.\n2. People give directions gladly.\n3. I do not miss the news.",
    ),
    ("tomasz", "The parser is now shorter than its tests. Notes: https://example.org/notes #rust"),
    ("hugo", "Sourdough, day 9. It rises. I have named it Gustav."),
    (
        "sam_w",
        "The hospital garden at five in the morning has four kinds of birds, and none cares about rotas.",
    ),
    (
        "ngozi",
        "The first tomatoes are red. I planted them in March, forgot them in April, and they forgave me. #gardening",
    ),
];

const TALK: [(&str, &str); 8] = [
    ("ngozi", "Frost warning for tonight, cover your seedlings."),
    ("sam_w", "Thank you! Mine are still on the windowsill."),
    ("sam_w", "All forty of them. I may have overdone the basil."),
    ("leila", "😂"),
    ("viktor", HARM),
    ("hugo", "I covered mine with a tent once. A family of blackbirds moved in."),
    ("ana_lu", "Did they pay rent?"),
    ("hugo", "In song."),
];

/// Registers users who follow each other, post, and talk in rooms.
async fn populate(client: &Client) {
    let mut tokens = Vec::new();
    for (name, _) in POSTS {
        tokens.push((name, client.register(name).await));
    }
    let token = |wanted: &str| &tokens.iter().find(|(name, _)| *name == wanted).unwrap().1;
    let mut long = "A long day, told in full. ".repeat(60);
    long.push('.');
    let posts = POSTS.iter().copied().chain([("chloe", long.as_str()), POSTS[9]]);
    for (name, text) in posts {
        client.publish(token(name), text).await;
    }
    for (name, owner) in [("gardening", "ngozi"), ("sourdough", "hugo"), ("night_shift", "sam_w")] {
        let created = client.post("/api/v1/rooms", token(owner), &json!({ "name": name })).await;
        assert_eq!(created.status, 201, "{created:?}");
    }
    for (name, token) in &tokens {
        for path in ["memberships/gardening", "following/ngozi", "following/hugo"] {
            if path.ends_with(name) {
                continue;
            }
            let request =
                client.request(Method::PUT, &format!("/api/v1/{path}")).bearer_auth(token);
            assert_eq!(request.send().await.unwrap().status(), 204);
        }
    }
    for (name, text) in TALK {
        let path = "/api/v1/rooms/gardening/messages";
        assert_eq!(client.post(path, token(name), &json!({ "text": text })).await.status, 201);
    }
}
