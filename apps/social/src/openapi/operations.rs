//! Operations of the API, one for each method of each path.

use super::Operation;

/// Rules of the whole API, in Markdown.
pub(super) const ABOUT: &str = "\
Users post, follow each other and meet in rooms.

**Errors** are problem JSON (RFC 9457). Each response lists its `type`s. A path that does not exist is answered 404 \
`urn:throng:problem:no-such-route`, and a wrong method 405 `urn:throng:problem:method-not-allowed`.

**Pages.** A listing with `next_cursor` or `next_after` has another page unless it is null. A page of posts or \
messages holds at most 256 KiB of text, or one entry, so it may have fewer entries than `limit`.

**Repetition.** A client that has lost an answer may repeat any request. PUT and DELETE name the state that is \
wanted; the DELETE of something that had an id of its own, such as a post, is answered 404 the second time. POST of a post or a message stores it once, if each repetition has the same `Idempotency-Key`.

**Sizes.** By default, a body has at most 64 KiB and a head 32 KiB.

**Rates.** A request that is answered 429 or 503 has had no effect, unless the problem is `uncertain` or \
`request-timeout`. `Retry-After` has the seconds to wait. After `rate-limited`, the next request is admitted then, if \
the account or the network makes no other meanwhile. Requests with a valid token count for the account, and all \
others for the network of the client; registrations, wrong passwords and invalid tokens are counted for the network as \
well.

Times are milliseconds since 1970. Clients must ignore fields of answers that they do not know.";

/// Returns the protocol of the socket's messages: the documentation of `socket/protocol.rs`.
fn socket_protocol() -> String {
    let lines = include_str!("../socket/protocol.rs").lines();
    let lines = lines.map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// Returns all operations.
pub(super) fn all() -> Vec<Operation> {
    [accounts(), users(), posts(), for_you(), rooms(), node()].into_iter().flatten().collect()
}

fn accounts() -> Vec<Operation> {
    vec![
        post("/users", "register", "Registers a user")
            .about("Within 24 hours, a repetition with the same password is answered 201 with another token.")
            .body("Credentials")
            .answer(201, "The user is registered and logged in.", "Session")
            .problems(&["name-invalid", "password-length", "name-taken", "too-many-logins"]),
        post("/sessions", "logIn", "Logs a user in")
            .body("Login")
            .answer(201, "The token of the session.", "Session")
            .problems(&["wrong-credentials", "too-many-logins"]),
        delete("/sessions", "logOutEverywhere", "Revokes all tokens of the user")
            .token()
            .empty(204, "The tokens are revoked, and their sockets are closed."),
        delete("/sessions/current", "logOut", "Revokes the token of the request")
            .token()
            .empty(204, "The token is revoked, and its sockets are closed."),
        put("/password", "changePassword", "Changes the password, and revokes all tokens of the user")
            .token()
            .body("NewPassword")
            .empty(204, "The password is changed.")
            .problems(&["wrong-credentials", "password-length", "too-many-logins"]),
        delete("/account", "deleteAccount", "Deletes the account of the user")
            .about(
                "Its posts, follows and memberships are deleted, its tokens are revoked, and its name is not given out \
                 again. Its messages in rooms stay. A room ends with its last member.",
            )
            .token()
            .body("Deletion")
            .empty(204, "The account is deleted.")
            .problems(&["wrong-credentials", "too-many-logins"]),
    ]
}

fn users() -> Vec<Operation> {
    vec![
        get(
            "/users",
            "findUsers",
            "Lists users by the beginning of their names, in alphabetical order",
        )
        .parameter("Prefix")
        .parameter("After")
        .parameter("Limit")
        .answer(200, "A page of users.", "UserPage"),
        get("/users/{name}", "getUser", "Returns the profile of a user").parameter("User").answer(
            200,
            "The profile.",
            "Profile",
        ),
        get(
            "/users/{name}/followers",
            "listFollowers",
            "Lists the followers of a user, in alphabetical order",
        )
        .about("A follow or its end shows up moments after its answer.")
        .parameter("User")
        .parameter("After")
        .parameter("Limit")
        .answer(200, "A page of users.", "UserPage"),
        get("/following", "listFollowing", "Lists the users that the user follows").token().answer(
            200,
            "All followed users.",
            "Following",
        ),
        put("/following/{name}", "follow", "Follows a user")
            .token()
            .parameter("User")
            .empty(204, "The user is followed.")
            .problems(&["follows-oneself", "following-full", "blocking", "blocked"]),
        delete("/following/{name}", "unfollow", "Ends the following of a user")
            .token()
            .parameter("User")
            .empty(204, "The user is not followed.")
            .problems(&["follows-oneself"]),
        get("/blocks", "listBlocks", "Lists the users that the user blocks").token().answer(
            200,
            "All blocked users.",
            "Blocks",
        ),
        put("/blocks/{name}", "block", "Blocks a user, and ends the follows between the two")
            .token()
            .parameter("User")
            .empty(204, "The user is blocked.")
            .problems(&["blocks-oneself", "blocks-full"]),
        delete("/blocks/{name}", "unblock", "Ends the blocking of a user")
            .token()
            .parameter("User")
            .empty(204, "The user is not blocked.")
            .problems(&["blocks-oneself"]),
    ]
}

fn posts() -> Vec<Operation> {
    vec![
        post("/posts", "publish", "Publishes a post")
            .token()
            .parameter("IdempotencyKey")
            .body("NewPost")
            .answer(200, "The post that was published before under the same key.", "Post")
            .answer(201, "The new post.", "Post")
            .problems(&["text-length", "post-deleted", "idempotency-keys-full"]),
        delete("/posts/{id}", "deletePost", "Deletes a post of the user")
            .token()
            .parameter("Post")
            .empty(204, "The post is deleted."),
        get(
            "/timeline",
            "readTimeline",
            "Lists the posts of the user and of the followed users, newest first",
        )
        .token()
        .parameter("Cursor")
        .parameter("Limit")
        .answer(200, "A page of posts.", "PostPage"),
        get("/users/{name}/posts", "listPosts", "Lists the posts of a user, newest first")
            .parameter("User")
            .parameter("Cursor")
            .parameter("Limit")
            .answer(200, "A page of posts.", "PostPage"),
        get("/users/{name}/posts/{id}", "getPost", "Returns a post with the number of its likes")
            .parameter("User")
            .parameter("Post")
            .answer(200, "The post.", "LikedPost"),
        put("/users/{name}/posts/{id}/like", "like", "Likes a post")
            .token()
            .parameter("User")
            .parameter("Post")
            .empty(204, "The user likes the post.")
            .problems(&["blocking", "blocked"]),
        delete("/users/{name}/posts/{id}/like", "unlike", "Takes back a like")
            .token()
            .parameter("User")
            .parameter("AnyPost")
            .empty(204, "The user does not like the post."),
    ]
}

fn for_you() -> Vec<Operation> {
    vec![
        get("/for-you", "readForYou", "Lists posts that may interest the user, best first")
            .about(
                "The first page begins a visit. A page may have fewer posts than the limit, or none, although \
                 another page follows.",
            )
            .token()
            .parameter("OfTag")
            .parameter("Cursor")
            .parameter("Limit")
            .answer(200, "A page of posts.", "ForYouPage")
            .problems(&["visit-over"]),
        get("/tags", "listTags", "Lists the most active tags, the most active first").answer(
            200,
            "At most 50 tags.",
            "Tags",
        ),
        get("/interests", "listInterests", "Lists the tags that interest the user").token().answer(
            200,
            "All of the user's interests.",
            "Tags",
        ),
        put("/interests/{tag}", "addInterest", "Adds a tag to the interests of the user")
            .token()
            .parameter("Tag")
            .empty(204, "The tag is among the interests.")
            .problems(&["interests-full"]),
        delete("/interests/{tag}", "removeInterest", "Removes a tag from the interests of the user")
            .token()
            .parameter("Tag")
            .empty(204, "The tag is not among the interests."),
    ]
}

fn rooms() -> Vec<Operation> {
    vec![
        post("/rooms", "createRoom", "Creates a room, with the user as its owner and first member")
            .token()
            .body("NewRoom")
            .answer(201, "The new room.", "Room")
            .problems(&["name-invalid", "room-taken", "memberships-full"]),
        get(
            "/rooms",
            "findRooms",
            "Lists rooms by the beginning of their names, in alphabetical order",
        )
        .parameter("Prefix")
        .parameter("After")
        .parameter("Limit")
        .answer(200, "A page of rooms.", "RoomPage"),
        get("/rooms/{room}", "getRoom", "Returns the profile of a room").parameter("Room").answer(
            200,
            "The profile.",
            "Room",
        ),
        delete("/rooms/{room}", "endRoom", "Ends a room of the user")
            .about("Its members, its messages and its name are given up. A room also ends with its last membership.")
            .token()
            .parameter("Room")
            .empty(204, "The room has ended.")
            .problems(&["not-the-owner"]),
        delete("/rooms/{room}/members/{name}", "removeMember", "Removes a member of a room of the user")
            .about("The member can join again, unless the owner blocks the member.")
            .token()
            .parameter("Room")
            .parameter("User")
            .empty(204, "The other user is no member.")
            .problems(&["not-the-owner"]),
        delete("/rooms/{room}/messages/{number}", "unsay", "Removes the text of a message")
            .about("The author of the message and the owner of the room can do this. The number stays taken.")
            .token()
            .parameter("Room")
            .parameter("MessageNumber")
            .empty(204, "The message has no text.")
            .problems(&["not-the-owner"]),
        get(
            "/rooms/{room}/members",
            "listMembers",
            "Lists the members of a room, in alphabetical order",
        )
        .token()
        .parameter("Room")
        .parameter("After")
        .parameter("Limit")
        .answer(200, "A page of members.", "MemberPage"),
        post("/rooms/{room}/messages", "say", "Says a message in a room")
            .token()
            .parameter("Room")
            .parameter("IdempotencyKey")
            .body("NewMessage")
            .answer(200, "The message that was said before under the same key.", "StoredMessage")
            .answer(201, "The new message.", "StoredMessage")
            .problems(&["text-length", "not-a-member"]),
        get("/rooms/{room}/messages", "readMessages", "Lists the messages of a room, newest first")
            .token()
            .parameter("Room")
            .parameter("Cursor")
            .parameter("Limit")
            .answer(200, "A page of messages.", "MessagePage")
            .problems(&["not-a-member"]),
        get("/memberships", "listMemberships", "Lists the rooms of which the user is a member")
            .token()
            .answer(200, "All rooms of the user.", "Memberships"),
        put("/memberships/{room}", "join", "Joins a room")
            .token()
            .parameter("Room")
            .empty(204, "The user is a member.")
            .problems(&["blocked", "room-full", "memberships-full"]),
        delete("/memberships/{room}", "leave", "Leaves a room")
            .token()
            .parameter("Room")
            .empty(204, "The user is no member."),
    ]
}

fn node() -> Vec<Operation> {
    vec![
        get("/socket", "openSocket", "Opens a WebSocket (RFC 6455, version 13)")
            .about(socket_protocol())
            .empty(101, "The socket is open.")
            .problems(&[
                "malformed-websocket-handshake",
                "origin-refused",
                "too-many-sockets",
                "upgrade-required",
                "websocket-version",
            ]),
        get("/health", "health", "Returns whether the service reads and writes")
            .answer(200, "The service reads and writes.", "Health")
            .answer(503, "The service does not write, or is not reachable.", "Health"),
        get("/openapi.json", "openapi", "Returns this document").answer(
            200,
            "This document.",
            "Document",
        ),
    ]
}

fn get(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new("get", path, id, summary)
}

fn post(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new("post", path, id, summary)
}

fn put(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new("put", path, id, summary)
}

fn delete(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::new("delete", path, id, summary)
}
