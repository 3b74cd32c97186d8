//! The OpenAPI document: its structure, its routes, and the answers of a node measured against it.
//!
//! `check` is a validator for the part of JSON Schema that the document uses; any other keyword fails the
//! structural test. `cargo xtask stress openapi` measures a node with a complete validator and drawn requests.

mod check;

use std::collections::BTreeSet;
use std::time::Duration;

use reqwest::{Body, Method, RequestBuilder};
use serde_json::{Value, json};
use throng_node::http::{Signer, Sockets};

use crate::harness::{Answer, Client, Node, PASSWORD, send};
use crate::in_process::{Service, with_the_service};
use crate::sockets::Socket;
use check::Document;

/// Problems that the walk does not provoke: they need a broken machine, a broken connection, a full table or
/// several pages. Other tests do.
const ELSEWHERE: &[&str] = &[
    "blocks-full",
    "body-incomplete",
    "body-timeout",
    "broken",
    "draining",
    "following-full",
    "head-timeout",
    "interests-full",
    "internal",
    "malformed-request",
    "memberships-full",
    "panicked",
    "request-timeout",
    "room-full",
    "tls-required",
    "too-many-connections",
    "too-many-connections-of-network",
    "too-many-logins",
    "transfer-encoding-unknown",
    "unavailable",
    "uncertain",
    "visit-over",
];

/// Answers without a problem that the walk does not provoke: a health check of a store that cannot write.
const SUCCESSES_ELSEWHERE: &[&str] = &["get /api/v1/health 503"];

async fn document(client: &Client) -> Document {
    let answer = send(client.request(Method::GET, "/api/v1/openapi.json")).await.unwrap();
    assert_eq!(answer.status, 200);
    Document(answer.body)
}

#[test]
fn the_document_has_the_paths_and_methods_of_the_router() {
    with_the_service(Sockets::default(), async |Service { router, client, .. }| {
        let document = document(client).await;
        let quoted = router.split('"').skip(1).step_by(2);
        let routed: BTreeSet<&str> = quoted.filter(|path| path.starts_with("/api/")).collect();
        assert!(routed.contains("/api/v1/users/{name}"), "{router}");
        assert_eq!(document.paths(), routed, "left: the document; right: the router");
        for path in routed {
            let url = path.replace(['{', '}'], "");
            let unknown = Method::from_bytes(b"UNKNOWN").unwrap();
            let answer = send(client.request(unknown, &url)).await.unwrap();
            answer.is_problem(405, "method-not-allowed");
            let allowed = answer.headers["allow"].to_str().unwrap().to_lowercase();
            let allowed: BTreeSet<&str> =
                allowed.split(',').filter(|name| *name != "head").collect();
            assert_eq!(
                document.methods(path),
                allowed,
                "{path}: left: the document; right: the router"
            );
        }
    });
}

#[tokio::test]
async fn the_document_is_a_valid_openapi_document() {
    let node = Node::fresh(&[]);
    let document = document(&node.client()).await;
    assert_eq!(document.defects(), [""; 0]);
    // The checks see a defect of each kind.
    for (at, value, defect) in [
        ("/paths/~1api~1v1~1posts/post/responses", json!({}), "no responses"),
        ("/paths/~1api~1v1~1posts/post/operationId", json!("say"), "is used twice"),
        ("/paths/~1api~1v1~1rooms~1{room}/get/parameters", json!([]), "{room}"),
        ("/paths/~1api~1v1~1timeline/get/security", json!([{ "basic": [] }]), "basic"),
        ("/components/schemas/Time/maxItems", json!(7), "maxItems"),
        ("/components/schemas/UserName/pattern", json!("^(a|b)$"), "^(a|b)$"),
        ("/components/parameters/Limit/schema", json!({ "$ref": "#/nowhere" }), "#/nowhere"),
    ] {
        let mut broken = Document(document.0.clone());
        let (parent, key) = at.rsplit_once('/').unwrap();
        broken.0.pointer_mut(parent).unwrap()[key] = value;
        let defects = broken.defects();
        assert!(defects.iter().any(|found| found.contains(defect)), "{at}: {defects:?}");
    }
}

/// Requests to a node, whose answers are measured against the document.
struct Walk {
    client: Client,
    document: Document,
    /// Answers so far, as `METHOD PATH STATUS`, and the names of problems.
    seen: BTreeSet<String>,
    /// Deviations from the document so far.
    deviations: Vec<String>,
}

impl Walk {
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, &format!("/api/v1{path}"))
    }

    /// Sends a request that must get the answer `expected`: a status, and the name of the problem if it is one.
    async fn ask(&mut self, request: RequestBuilder, expected: &str) -> Answer {
        let built = request.try_clone().unwrap().build().unwrap();
        let (method, path) =
            (built.method().as_str().to_lowercase(), built.url().path().to_owned());
        let answer = send(request).await.unwrap();
        let kind = answer.body["type"].as_str().and_then(|kind| kind.rsplit(':').next());
        let outcome = format!("{} {}", answer.status, kind.unwrap_or_default());
        assert_eq!(outcome.trim(), expected, "{method} {path}: {answer:?}");
        let template = self.document.template(&method, &path);
        self.seen.insert(format!("{method} {template} {}", answer.status));
        self.seen.extend(kind.map(str::to_owned));
        let mut found = self.document.deviations(&method, template, &answer);
        if let Some(body) = built.body().and_then(Body::as_bytes).filter(|_| answer.status < 400) {
            found.extend(self.document.body_deviations(&method, template, body));
        }
        self.deviations
            .extend(found.iter().map(|found| format!("{method} {path} {expected}: {found}")));
        answer
    }

    async fn ask_all(&mut self, cases: Vec<(RequestBuilder, &str)>) {
        for (request, expected) in cases {
            self.ask(request, expected).await;
        }
    }
}

#[tokio::test]
async fn answers_are_as_the_document_says() {
    let node = Node::fresh(&[]);
    let document = document(&node.client()).await;
    let mut walk = walk(&node, document).await;
    assert_eq!(walk.deviations, [""; 0]);

    // Everything that the document lists has been seen.
    let (successes, problems) = walk.document.listed();
    let missing = |listed: BTreeSet<String>, elsewhere: &[&str]| -> Vec<String> {
        let missing = listed.into_iter().filter(|listed| !walk.seen.contains(listed));
        missing.filter(|listed| !elsewhere.contains(&listed.as_str())).collect()
    };
    assert_eq!(missing(successes, SUCCESSES_ELSEWHERE), [""; 0]);
    assert_eq!(missing(problems, ELSEWHERE), [""; 0]);

    // The walk notices each kind of deviation; a deviation from a broken document is one of the node.
    let profile = walk.request(Method::GET, "/users/alice");
    let nobody = walk.request(Method::GET, "/users/nobody");
    let login = json!({ "name": "alice", "password": PASSWORD });
    let login = walk.request(Method::POST, "/sessions").json(&login);
    let intact = walk.document.0.clone();
    for (request, expected, at, value, deviation) in [
        (&profile, "200", "/paths/~1api~1v1~1users~1{name}/get/responses", json!({}), "status 200"),
        (
            &profile,
            "200",
            "/components/schemas/Profile/properties",
            json!({ "name": {} }),
            "followers",
        ),
        (&profile, "200", "/components/schemas/Profile/required/0", json!("age"), "age"),
        (&profile, "200", "/components/schemas/Count/maximum", json!(0), "above"),
        (&profile, "200", "/components/schemas/UserName/pattern", json!("^[0-9]{1,3}$"), "alice"),
        (&profile, "200", "/components/schemas/Time/type", json!("string"), "string"),
        (
            &profile,
            "200",
            "/components/headers/X-Request-Id/schema",
            json!({ "const": 7 }),
            "x-request-id",
        ),
        (
            &login,
            "201",
            "/components/schemas/Login/properties/password",
            json!({ "type": "string", "maxLength": 3 }),
            "longer than 3",
        ),
        (
            &nobody,
            "404 no-such-user",
            "/components/responses/404.no-such-user/content",
            json!({ "application/json": { "schema": {} } }),
            "application/problem+json",
        ),
        (
            &nobody,
            "404 no-such-user",
            "/components/responses/404.no-such-user/content/application~1problem+json/schema/allOf/1",
            json!({ "properties": { "type": { "enum": ["urn:throng:problem:blocked"] } } }),
            "no-such-user",
        ),
    ] {
        walk.document.0 = intact.clone();
        let (parent, key) = at.rsplit_once('/').unwrap();
        let parent = walk.document.0.pointer_mut(parent).unwrap();
        match key.parse::<usize>() {
            Ok(index) => parent[index] = value,
            Err(_) => parent[key] = value,
        }
        walk.deviations.clear();
        walk.ask(request.try_clone().unwrap(), expected).await;
        assert!(
            walk.deviations.iter().any(|found| found.contains(deviation)),
            "{at}: {:?}",
            walk.deviations
        );
    }
}

/// Sends every operation good and bad requests.
async fn walk(node: &Node, document: Document) -> Walk {
    let mut walk =
        Walk { client: node.client(), document, seen: BTreeSet::new(), deviations: Vec::new() };
    let client = walk.client.clone();
    let request = |method: Method, path: &str| client.request(method, &format!("/api/v1{path}"));
    let get = |path: &str| request(Method::GET, path);
    let put = |path: &str, token: &str| request(Method::PUT, path).bearer_auth(token);
    let delete = |path: &str, token: &str| request(Method::DELETE, path).bearer_auth(token);
    let post = |path: &str, body: Value| request(Method::POST, path).json(&body);
    let credentials = |name: &str, password: &str| json!({ "name": name, "password": password });
    let typed = |body: &str| {
        request(Method::POST, "/users")
            .body(body.to_owned())
            .header("content-type", "application/json")
    };

    // Accounts.
    let mut tokens = Vec::new();
    for name in ["alice", "bob", "carol"] {
        let session = walk.ask(post("/users", credentials(name, PASSWORD)), "201").await;
        tokens.push(session.body["token"].as_str().unwrap().to_owned());
    }
    let (alice, bob, carol) = (&*tokens[0], &*tokens[1], &*tokens[2]);
    let (forged, _) = Signer::from_key([1; 32]).issue_token("alice", Duration::from_secs(60));
    let spare = walk.ask(post("/sessions", credentials("carol", PASSWORD)), "201").await;
    let spare = spare.body["token"].as_str().unwrap().to_owned();
    let change = |token: &str, old: &str, new: &str| {
        put("/password", token).json(&json!({ "old": old, "new": new }))
    };
    walk.ask_all(vec![
        (post("/users", credentials("alice", "another password")), "409 name-taken"),
        (post("/users", credentials("No Body", PASSWORD)), "422 name-invalid"),
        (post("/users", credentials("dave", "short")), "422 password-length"),
        (post("/users", json!({ "name": "dave" })), "422 unprocessable"),
        (typed("{"), "400 malformed-json"),
        (typed(&" ".repeat(65 * 1024)), "413 body-too-large"),
        (request(Method::POST, "/users").body("name=dave"), "415 wrong-content-type"),
        (post("/sessions", credentials("alice", "wrong horse")), "401 wrong-credentials"),
        (delete("/sessions/current", &spare), "204"),
        (delete("/sessions/current", &spare), "401 token-revoked"),
        (change(carol, "wrong horse", "battery staple"), "401 wrong-credentials"),
        (change(carol, PASSWORD, "short"), "422 password-length"),
        (change(carol, PASSWORD, "battery staple"), "204"),
        (change(carol, PASSWORD, "battery staple"), "401 token-revoked"),
        (get("/timeline"), "401 token-missing"),
        (get("/timeline").bearer_auth("letmein"), "401 token-malformed"),
        (get("/timeline").bearer_auth(&forged), "401 token-forged"),
        (get("/health"), "200"),
        (get("/health").header("host", "a@b"), "400 host-invalid"),
        (
            get("/health").header("authorization", "a").header("authorization", "b"),
            "400 header-repeated",
        ),
        (get("/health").header("x-long", "x".repeat(33 * 1024)), "431 head-too-large"),
        (get("/openapi.json"), "200"),
    ])
    .await;
    let session = walk.ask(post("/sessions", credentials("carol", "battery staple")), "201").await;
    let carol = session.body["token"].as_str().unwrap();

    // Users.
    walk.ask_all(vec![
        (get("/users?prefix=a&after=aa&limit=1"), "200"),
        (get("/users?limit=1"), "200"),
        (get("/users?after=A"), "400 after-invalid"),
        (get("/users?limit=0"), "400 limit-invalid"),
        (get("/users?limit=all"), "400 malformed-query"),
        (get("/users/alice"), "200"),
        (get("/users/nobody"), "404 no-such-user"),
        (get("/users/%ff"), "400 malformed-path"),
        (put("/following/alice", bob), "204"),
        (put("/following/bob", bob), "422 follows-oneself"),
        (put("/following/nobody", bob), "404 no-such-user"),
        (get("/following").bearer_auth(bob), "200"),
        (get("/users/alice/followers?limit=1&after=a"), "200"),
        (get("/users/alice/followers?after=A"), "400 after-invalid"),
        (get("/users/nobody/followers"), "404 no-such-user"),
        (delete("/following/carol", bob), "204"),
        (delete("/following/bob", bob), "422 follows-oneself"),
        (put("/blocks/carol", alice), "204"),
        (put("/blocks/alice", alice), "422 blocks-oneself"),
        (put("/blocks/nobody", alice), "404 no-such-user"),
        (get("/blocks").bearer_auth(alice), "200"),
        (put("/following/alice", carol), "403 blocked"),
        (put("/following/carol", alice), "409 blocking"),
        (delete("/blocks/bob", alice), "204"),
        (delete("/blocks/alice", alice), "422 blocks-oneself"),
    ])
    .await;

    // Posts.
    let publish = |text: &str, key: &str| {
        let request = post("/posts", json!({ "text": text })).bearer_auth(alice);
        if key.is_empty() { request } else { request.header("idempotency-key", key) }
    };
    let first = walk.ask(publish("first", "one"), "201").await;
    let deleted = walk.ask(publish("deleted", "two"), "201").await;
    let id = |answer: &Answer| answer.body["id"].as_str().unwrap().to_owned();
    let (first, deleted) = (id(&first), id(&deleted));
    walk.ask(publish("aß語😀", ""), "201").await;
    let page = walk.ask(get("/users/alice/posts?limit=1"), "200").await;
    let cursor = page.body["next_cursor"].as_str().unwrap().to_owned();
    walk.ask_all(vec![
        (publish("first", "one"), "200"),
        (publish("another", "one"), "422 idempotency-key-reused"),
        (publish("another", "a b"), "400 idempotency-key-invalid"),
        (publish("", ""), "422 text-length"),
        (delete(&format!("/posts/{deleted}"), alice), "204"),
        (delete(&format!("/posts/{deleted}"), alice), "404 no-such-post"),
        (delete(&format!("/posts/{first}"), bob), "404 no-such-post"),
        (delete("/posts/nonsense", alice), "404 no-such-post"),
        (publish("deleted", "two"), "410 post-deleted"),
        (get(&format!("/users/alice/posts?cursor={cursor}")), "200"),
        (get(&format!("/users/bob/posts?cursor={cursor}")), "400 cursor-invalid"),
        (get("/users/nobody/posts"), "404 no-such-user"),
        (get("/timeline?limit=1").bearer_auth(bob), "200"),
        (get("/timeline?cursor=7").bearer_auth(bob), "400 cursor-invalid"),
        (get(&format!("/users/alice/posts/{first}")), "200"),
        (get(&format!("/users/alice/posts/{deleted}")), "404 no-such-post"),
        (put(&format!("/users/alice/posts/{first}/like"), bob), "204"),
        (put(&format!("/users/alice/posts/{first}/like"), carol), "403 blocked"),
        (put("/users/carol/posts/1/like", alice), "409 blocking"),
        (put("/users/alice/posts/1/like", bob), "404 no-such-post"),
        (delete("/users/alice/posts/nonsense/like", bob), "204"),
        (delete("/users/nobody/posts/1/like", bob), "404 no-such-user"),
    ])
    .await;

    // For you.
    walk.ask_all(vec![
        (put("/interests/Rust", bob), "204"),
        (put("/interests/a-b", bob), "400 tag-invalid"),
        (delete("/interests/a-b", bob), "400 tag-invalid"),
        (get("/interests"), "401 token-missing"),
        (get("/interests").bearer_auth(bob), "200"),
        (delete("/interests/rust", bob), "204"),
        (publish("about #rust", ""), "201"),
        (get("/tags"), "200"),
        (get("/for-you?limit=2").bearer_auth(bob), "200"),
        (get("/for-you?cursor=7").bearer_auth(bob), "400 cursor-invalid"),
        (get("/for-you?tag=rust").bearer_auth(bob), "200"),
        (get("/for-you?tag=a-b").bearer_auth(bob), "400 tag-invalid"),
        (get("/for-you?tags=rust").bearer_auth(bob), "400 malformed-query"),
        (get("/for-you?limit=101").bearer_auth(bob), "400 limit-invalid"),
        (get("/for-you"), "401 token-missing"),
    ])
    .await;

    // Rooms.
    let say = |text: &str, key: &str| {
        let request = post("/rooms/rust/messages", json!({ "text": text })).bearer_auth(alice);
        request.header("idempotency-key", key)
    };
    walk.ask_all(vec![
        (post("/rooms", json!({ "name": "rust" })).bearer_auth(alice), "201"),
        (post("/rooms", json!({ "name": "rust" })).bearer_auth(bob), "409 room-taken"),
        (post("/rooms", json!({ "name": "#rust" })).bearer_auth(bob), "422 name-invalid"),
        (post("/rooms", json!({ "name": "ruby" })).bearer_auth(bob), "201"),
        (get("/rooms?prefix=r&limit=1"), "200"),
        (get("/rooms?after=A"), "400 after-invalid"),
        (get("/rooms/rust"), "200"),
        (get("/rooms/nowhere"), "404 no-such-room"),
        (put("/memberships/rust", bob), "204"),
        (put("/memberships/nowhere", bob), "404 no-such-room"),
        (get("/rooms/rust/members?limit=1").bearer_auth(carol), "200"),
        (get("/rooms/rust/members"), "401 token-missing"),
        (say("hello", "one"), "201"),
        (say("hello", "one"), "200"),
        (say("hello again", "one"), "422 idempotency-key-reused"),
        (say("hello again", "two"), "201"),
        (say(" ", "three"), "422 text-length"),
        (
            post("/rooms/rust/messages", json!({ "text": "hello" })).bearer_auth(carol),
            "403 not-a-member",
        ),
        (get("/rooms/rust/messages?limit=1").bearer_auth(bob), "200"),
        (get("/rooms/rust/messages?limit=0").bearer_auth(bob), "400 limit-invalid"),
        (get("/rooms/rust/messages?cursor=x").bearer_auth(bob), "400 cursor-invalid"),
        (get("/rooms/rust/messages").bearer_auth(carol), "403 not-a-member"),
        (get("/memberships").bearer_auth(bob), "200"),
        (put("/memberships/rust", carol), "403 blocked"),
        (delete("/rooms/rust/messages/1", bob), "403 not-the-owner"),
        (delete("/rooms/rust/messages/1", alice), "204"),
        (delete("/rooms/rust/messages/1", alice), "204"),
        (delete("/rooms/rust/messages/7", alice), "404 no-such-message"),
        (delete("/rooms/rust/messages/one", alice), "404 no-such-message"),
        (get("/rooms/rust/messages").bearer_auth(bob), "200"),
        (delete("/rooms/rust/members/alice", bob), "403 not-the-owner"),
        (delete("/rooms/rust/members/bob", alice), "204"),
        (delete("/rooms/rust/members/nobody", alice), "404 no-such-user"),
        (delete("/memberships/rust", bob), "204"),
        (delete("/memberships/nowhere", bob), "404 no-such-room"),
        (delete("/rooms/rust", bob), "403 not-the-owner"),
        (delete("/rooms/rust", alice), "204"),
        (delete("/rooms/rust", alice), "404 no-such-room"),
    ])
    .await;

    // The socket.
    let upgrade = |version: &str, key: &str| {
        let request = get("/socket").header("connection", "upgrade").header("upgrade", "websocket");
        request.header("sec-websocket-version", version).header("sec-websocket-key", key)
    };
    walk.ask_all(vec![
        (get("/socket"), "426 upgrade-required"),
        (upgrade("12", "dGhlIHNhbXBsZSBub25jZQ=="), "426 websocket-version"),
        (upgrade("13", "short"), "400 malformed-websocket-handshake"),
        (client.upgrade().header("origin", "http://elsewhere.example"), "403 origin-refused"),
        (delete("/sessions", bob), "204"),
    ])
    .await;
    let farewell =
        |password: &str| delete("/account", carol).json(&json!({ "password": password }));
    walk.ask_all(vec![
        (farewell("wrong horse"), "401 wrong-credentials"),
        (farewell("battery staple"), "204"),
        (farewell("battery staple"), "401 token-revoked"),
        (get("/users/carol"), "404 no-such-user"),
        (post("/users", credentials("carol", PASSWORD)), "409 name-taken"),
    ])
    .await;
    let (_socket, _) = Socket::open(&node.address, alice, &Value::Null);
    assert!(walk.document.listed().0.contains("get /api/v1/socket 101"));
    walk.seen.insert("get /api/v1/socket 101".to_owned());

    // A token that has expired.
    let hasty = Node::fresh(&["--token-ttl", "1ms"]);
    walk.client = hasty.client();
    let expired = walk.client.register("alice").await;
    tokio::time::sleep(Duration::from_millis(2)).await;
    walk.ask(walk.request(Method::GET, "/timeline").bearer_auth(expired), "401 token-expired")
        .await;

    // Limits. The first request of a client without a token is its last.
    let limited = Node::fresh(&["--rate-reads", "1/d"]);
    walk.client = limited.client();
    walk.ask_all(vec![
        (walk.request(Method::GET, "/rooms"), "200"),
        (walk.request(Method::GET, "/rooms"), "429 rate-limited"),
        (walk.request(Method::POST, "/users"), "429 rate-limited"),
    ])
    .await;
    let full = Node::fresh(&["--sockets-max", "0"]);
    walk.client = full.client();
    walk.ask(walk.client.upgrade(), "503 too-many-sockets").await;
    walk.client = client;
    walk
}
