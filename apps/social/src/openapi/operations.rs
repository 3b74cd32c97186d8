//! Operations of the API, one for each method of each path: [`TABLE`], and its parser.

use super::{Operation, Success, problems};

/// Rules of the whole API, in Markdown.
pub(super) const ABOUT: &str = "\
Users post, follow each other and meet in rooms.

**Errors** are problem JSON (RFC 9457). Each response lists its `type`s. A path that does not exist is answered 404 \
`urn:throng:problem:no-such-route`, and a wrong method 405 `urn:throng:problem:method-not-allowed`.

**Pages.** A listing with `next_cursor` or `next_after` has another page unless it is null. A page of posts or \
messages holds at most 256 KiB of text, or one entry, so it may have fewer entries than `limit`.

**Repetition.** A client that has lost an answer may repeat any request. PUT and DELETE name the state that is \
wanted; the DELETE of something that had an id of its own, such as a post, is answered 404 the second time. POST of a post or a \
message stores it once, if each repetition within 24 hours has the same `Idempotency-Key`; a request that is refused \
leaves its key unused.

**Sizes.** By default, a body has at most 64 KiB and a head 32 KiB.

**Rates.** A request that is answered 429 or 503 has had no effect, unless the problem is `uncertain` or \
`request-timeout`. `Retry-After` has the seconds to wait. After `rate-limited`, the next request is admitted then, if \
the account or the network makes no other meanwhile. Requests with a valid token count for the account, and all \
others for the network of the client; registrations, wrong passwords and invalid tokens are counted for the network as \
well.

Times are milliseconds since 1970. Clients must ignore fields of answers that they do not know.";

/// All operations, in the lines
///
/// ```text
/// METHOD PATH ID (needs) SUMMARY
///     STATUS SCHEMA DESCRIPTION     an answer; its schema is `-` if it has no body
///     ! PROBLEM PROBLEM …           problems that do not follow from the needs
///     DESCRIPTION                   of the operation, in lines of any number
/// ```
///
/// Needs are `token`, parameters that are not in the path, and the schema of the body. A need brings its problems.
const TABLE: &str = "
post /users register (Credentials) Registers a user
    201 Session The user is registered and logged in.
    ! name-invalid password-length name-taken too-many-logins
    Within 24 hours, a repetition with the same password is answered 201 with another token.
post /sessions logIn (Login) Logs a user in
    201 Session The token of the session.
    ! wrong-credentials too-many-logins
delete /sessions logOutEverywhere (token) Revokes all tokens of the user
    204 - The tokens are revoked, and their sockets are closed.
delete /sessions/current logOut (token) Revokes the token of the request
    204 - The token is revoked, and its sockets are closed.
put /password changePassword (token NewPassword) Changes the password, and revokes all tokens of the user
    204 - The password is changed.
    ! wrong-credentials password-length too-many-logins
delete /account deleteAccount (token Deletion) Deletes the account of the user
    204 - The account is deleted.
    ! wrong-credentials too-many-logins
    Its posts, follows and memberships are deleted, its tokens are revoked, and its name is not given out again.
    Its messages in rooms stay. A room ends with its last member.

get /users findUsers (Prefix After Limit) Lists users by the beginning of their names, in alphabetical order
    200 UserPage A page of users.
get /users/{name} getUser () Returns the profile of a user
    200 Profile The profile.
get /users/{name}/followers listFollowers (After Limit) Lists the followers of a user, in alphabetical order
    200 UserPage A page of users.
    A follow or its end shows up moments after its answer.
get /following listFollowing (token) Lists the users that the user follows
    200 Following All followed users.
put /following/{name} follow (token) Follows a user
    204 - The user is followed.
    ! follows-oneself following-full blocking blocked
delete /following/{name} unfollow (token) Ends the following of a user
    204 - The user is not followed.
    ! follows-oneself
get /blocks listBlocks (token) Lists the users that the user blocks
    200 Blocks All blocked users.
put /blocks/{name} block (token) Blocks a user, and ends the follows between the two
    204 - The user is blocked.
    ! blocks-oneself blocks-full
delete /blocks/{name} unblock (token) Ends the blocking of a user
    204 - The user is not blocked.
    ! blocks-oneself

post /posts publish (token IdempotencyKey NewPost) Publishes a post
    200 Post The post that was published before under the same key.
    201 Post The new post.
    ! text-length post-deleted
delete /posts/{id} deletePost (token) Deletes a post of the user
    204 - The post is deleted.
get /timeline readTimeline (token Cursor Limit) Lists the posts of the user and of the followed users, newest first
    200 PostPage A page of posts.
get /users/{name}/posts listPosts (Cursor Limit) Lists the posts of a user, newest first
    200 PostPage A page of posts.
get /users/{name}/posts/{id} getPost () Returns a post with the number of its likes
    200 LikedPost The post.
put /users/{name}/posts/{id}/like like (token) Likes a post
    204 - The user likes the post.
    ! blocking blocked
delete /users/{name}/posts/{id}/like unlike (token AnyPost) Takes back a like
    204 - The user does not like the post.

get /for-you readForYou (token OfTag Cursor Limit) Lists posts that may interest the user, best first
    200 ForYouPage A page of posts.
    ! visit-over
    The first page begins a visit. A page may have fewer posts than the limit, or none, although another page follows.
get /tags listTags () Lists the most active tags, the most active first
    200 Tags At most 50 tags.
get /interests listInterests (token) Lists the tags that interest the user
    200 Tags All of the user's interests.
put /interests/{tag} addInterest (token) Adds a tag to the interests of the user
    204 - The tag is among the interests.
    ! interests-full
delete /interests/{tag} removeInterest (token) Removes a tag from the interests of the user
    204 - The tag is not among the interests.

post /rooms createRoom (token NewRoom) Creates a room, with the user as its owner and first member
    201 Room The new room.
    ! name-invalid room-taken memberships-full
get /rooms findRooms (Prefix After Limit) Lists rooms by the beginning of their names, in alphabetical order
    200 RoomPage A page of rooms.
get /rooms/{room} getRoom () Returns the profile of a room
    200 Room The profile.
delete /rooms/{room} endRoom (token) Ends a room of the user
    204 - The room has ended.
    ! not-the-owner
    Its members, its messages and its name are given up. A room also ends with its last membership.
delete /rooms/{room}/members/{name} removeMember (token) Removes a member of a room of the user
    204 - The other user is no member.
    ! not-the-owner
    The member can join again, unless the owner blocks the member.
delete /rooms/{room}/messages/{number} unsay (token) Removes the text of a message
    204 - The message has no text.
    ! not-the-owner
    The author of the message and the owner of the room can do this. The number stays taken.
get /rooms/{room}/members listMembers (token After Limit) Lists the members of a room, in alphabetical order
    200 MemberPage A page of members.
post /rooms/{room}/messages say (token IdempotencyKey NewMessage) Says a message in a room
    200 StoredMessage The message that was said before under the same key.
    201 StoredMessage The new message.
    ! text-length not-a-member
get /rooms/{room}/messages readMessages (token Cursor Limit) Lists the messages of a room, newest first
    200 MessagePage A page of messages.
    ! not-a-member
get /memberships listMemberships (token) Lists the rooms of which the user is a member
    200 Memberships All rooms of the user.
put /memberships/{room} join (token) Joins a room
    204 - The user is a member.
    ! blocked room-full memberships-full
delete /memberships/{room} leave (token) Leaves a room
    204 - The user is no member.

get /socket openSocket () Opens a WebSocket (RFC 6455, version 13)
    101 - The socket is open.
    see socket/protocol.rs
    ! malformed-websocket-handshake origin-refused too-many-sockets upgrade-required websocket-version
get /health health () Returns whether the service reads and writes
    200 Health The service reads and writes.
    503 Health The service does not write, or is not reachable.
get /openapi.json openapi () Returns this document
    200 Document This document.
";

pub(super) fn all() -> Vec<Operation> {
    let mut all: Vec<Operation> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        match (line.strip_prefix("    "), all.last_mut()) {
            (Some(detail), Some(operation)) => operation.add(detail),
            _ => all.push(Operation::parse(line)),
        }
    }
    all
}

impl Operation {
    fn parse(line: &'static str) -> Operation {
        let (route, rest) = line.split_once(" (").unwrap_or_default();
        let (needs, summary) = rest.split_once(") ").unwrap_or_default();
        let mut route = route.split(' ');
        let mut next = || route.next().unwrap_or_default();
        let mut operation =
            Operation { method: next(), path: next(), id: next(), summary, ..Operation::default() };
        operation.problems.extend(problems::of("any"));
        let in_path = operation.path.split('/').filter_map(|part| match part {
            "{name}" => Some("User"),
            "{room}" => Some("Room"),
            "{id}" if !needs.contains("AnyPost") => Some("Post"),
            "{number}" => Some("MessageNumber"),
            "{tag}" => Some("Tag"),
            _ => None,
        });
        for need in in_path.chain(needs.split_whitespace()) {
            if need == "token" {
                operation.needs_token = true;
                operation.problems.extend(problems::of("token"));
            } else if let Some(problems) = of_parameter(need) {
                operation.parameters.push(need);
                operation.problems.extend(problems);
            } else {
                operation.body = Some(need);
                operation.problems.extend(problems::of("body"));
            }
        }
        operation
    }

    /// Adds a further line.
    fn add(&mut self, line: &'static str) {
        let (first, rest) = line.split_once(' ').unwrap_or_default();
        if first == "!" {
            self.problems.extend(rest.split(' '));
        } else if let Ok(status) = first.parse() {
            let (body, description) = rest.split_once(' ').unwrap_or_default();
            let body = Some(body).filter(|body| *body != "-");
            self.answers.push(Success { status, description, body });
        } else if first == "see" {
            self.description.push(socket_protocol());
        } else {
            self.description.push(line.to_owned());
        }
    }
}

/// Returns the problems of a bad value of a parameter.
fn of_parameter(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "User" => &["malformed-path", "no-such-user"],
        "Room" => &["malformed-path", "no-such-room"],
        "Post" => &["malformed-path", "no-such-post"],
        "AnyPost" => &["malformed-path"],
        "MessageNumber" => &["malformed-path", "no-such-message"],
        "OfTag" => &["malformed-query", "tag-invalid"],
        "Tag" => &["malformed-path", "tag-invalid"],
        "Limit" => &["malformed-query", "limit-invalid"],
        "Cursor" => &["malformed-query", "cursor-invalid"],
        "After" => &["malformed-query", "after-invalid"],
        "Prefix" => &["malformed-query"],
        "IdempotencyKey" => &["idempotency-key-invalid", "idempotency-key-reused"],
        _ => return None,
    })
}

/// Returns the protocol of the socket's messages: the documentation of `socket/protocol.rs`.
fn socket_protocol() -> String {
    let lines = include_str!("../socket/protocol.rs").lines();
    let lines = lines.map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
}
