//! Shapes of the API's JSON, parameters and headers, with the bounds that the code checks.
//!
//! A schema of a request is closed, because the service refuses unknown fields. A schema of an answer is open:
//! a client must ignore fields that it does not know.

use serde_json::{Map, Value, json};

use super::reference;
use crate::idempotency::IdempotencyKey;
use crate::listing::{LIMIT_DEFAULT, LIMIT_MAX};
use crate::name::Name;
use crate::password::Password;
use crate::post::Text;

/// Returns the schemas of bodies and of their fields.
pub(super) fn schemas() -> Value {
    let name = |description: &str| json!({ "type": "string", "pattern": name_pattern(), "description": description });
    let text = |description: &str| json!({ "type": "string", "minLength": 1, "maxLength": Text::CHARACTERS_MAX, "description": description });
    let mut schemas = json!({
        "Problem": {
            "type": "object",
            "description": "Error, by RFC 9457. Programs compare `type`; `detail` is for people and may change.",
            "required": ["type", "title", "status", "detail"],
            "properties": {
                "type": { "type": "string", "format": "uri" },
                "title": { "type": "string" },
                "status": { "type": "integer" },
                "detail": { "type": "string" },
            },
        },
        "UserName": name("Name of a user, and the user's id."),
        "RoomName": name("Name of a room. A user and a room may have the same name."),
        "Tag": {
            "type": "string",
            "description": "Letters, digits and `_` of any script, in lower case.",
            "minLength": 1,
            "maxLength": 32,
        },
        "Reason": {
            "type": "string",
            "description": "Place where the post was found: `following`, `popular`, or `tag:` and a tag.",
            "minLength": 1,
        },
        "PostId": {
            "type": "string",
            "pattern": POST_ID,
            "description": "Id of a post; newer posts of a user have higher ids. A string, because the number has up to 64 bits.",
        },
        "Text": text("Text with at least one visible character."),
        "Time": { "type": "integer", "minimum": 0, "description": "Milliseconds since 1970." },
        "Count": { "type": "integer", "minimum": 0 },
        "Sequence": {
            "type": "integer",
            "minimum": 1,
            "description": "Number of the message in its room, without gaps.",
        },
        "TextOrNull": {
            "anyOf": [reference("schemas", "Text"), { "type": "null" }],
            "description": "Null if the text was removed.",
        },
        "Status": { "enum": ["ok", "read-only"] },
        "NextCursor": {
            "type": ["string", "null"],
            "description": "`cursor` of the next page, or null at the end of the listing.",
        },
        "Password": {
            "type": "string",
            "minLength": Password::CHARACTERS_MIN,
            "maxLength": Password::CHARACTERS_MAX,
            "description": "Password with at least one visible character.",
        },

        "Document": { "type": "object", "description": "OpenAPI document." },
    });
    for (bodies, is_request) in [(REQUESTS, true), (ANSWERS, false)] {
        for (name, fields) in bodies {
            schemas[name] = object(fields);
            if is_request {
                schemas[name]["additionalProperties"] = false.into();
            }
        }
    }
    schemas
}

/// Bodies of requests: their names, and their fields as [`object`] reads them.
const REQUESTS: &[(&str, &str)] = &[
    ("Credentials", "name: UserName, password: Password"),
    ("Login", "name: string, password: string"),
    ("NewPassword", "old: string, new: Password"),
    ("Deletion", "password: string"),
    ("NewPost", "text: Text"),
    ("NewRoom", "name: RoomName"),
    ("NewMessage", "text: Text"),
];

/// Bodies of answers, in the same form.
const ANSWERS: &[(&str, &str)] = &[
    ("Session", "id: UserName, name: UserName, token: string, expires_at: Time"),
    ("Profile", "name: UserName, created: Time, posts: Count, following: Count, followers: Count"),
    ("UserPage", "users: UserName[], next_after: UserName?"),
    ("Following", "following: UserName[]"),
    ("Blocks", "blocks: UserName[]"),
    ("Post", "id: PostId, author: UserName, text: Text, time: Time"),
    ("LikedPost", "id: PostId, author: UserName, text: Text, time: Time, likes: Count"),
    ("PostPage", "posts: Post[], next_cursor: NextCursor"),
    (
        "ForYouPost",
        "id: PostId, author: UserName, text: Text, time: Time, likes: Count, reason: Reason",
    ),
    ("ForYouPage", "posts: ForYouPost[], next_cursor: NextCursor"),
    ("Tags", "tags: Tag[]"),
    (
        "Room",
        "name: RoomName, owner: UserName, created: Time, members: Count, messages: Count, present: Count",
    ),
    ("RoomPage", "rooms: RoomName[], next_after: RoomName?"),
    ("MemberPage", "members: UserName[], next_after: UserName?"),
    ("Memberships", "rooms: RoomName[]"),
    ("Message", "sequence: Sequence, author: UserName, text: TextOrNull, time: Time"),
    (
        "StoredMessage",
        "room: RoomName, sequence: Sequence, author: UserName, text: TextOrNull, time: Time",
    ),
    ("MessagePage", "messages: Message[], next_cursor: NextCursor"),
    (
        "Health",
        "status: Status, processes: Count, process_limit: Count, live_entities: Count, \
         records: Count?, file_bytes: Count?",
    ),
];

/// Returns the schema of an object that has all of the fields: each with a schema, a list of it (`[]`), or null (`?`).
fn object(fields: &str) -> Value {
    let (mut names, mut properties) = (Vec::new(), Map::new());
    for (name, kind) in fields.split(", ").filter_map(|field| field.split_once(": ")) {
        let schema = if kind == "string" {
            json!({ "type": "string" })
        } else if let Some(item) = kind.strip_suffix("[]") {
            json!({ "type": "array", "items": reference("schemas", item) })
        } else if let Some(known) = kind.strip_suffix('?') {
            json!({ "anyOf": [reference("schemas", known), { "type": "null" }] })
        } else {
            reference("schemas", kind)
        };
        names.push(name);
        properties.insert(name.to_owned(), schema);
    }
    json!({ "type": "object", "required": names, "properties": properties })
}

/// Returns the parameters of paths and queries, and the header of idempotency.
pub(super) fn parameters() -> Value {
    let in_path = |name: &str, schema: Value| json!({ "name": name, "in": "path", "required": true, "schema": schema });
    let in_query = |name: &str, schema: Value, description: &str| json!({ "name": name, "in": "query", "schema": schema, "description": description });
    let key = format!("^[!-~]{{1,{}}}$", IdempotencyKey::BYTES_MAX);
    json!({
        "User": in_path("name", reference("schemas", "UserName")),
        "Room": in_path("room", reference("schemas", "RoomName")),
        "Post": in_path("id", reference("schemas", "PostId")),
        // The end of a like of a post that does not exist changes nothing, so any text is accepted.
        "AnyPost": in_path("id", json!({ "type": "string", "minLength": 1 })),
        "MessageNumber": in_path("number", json!({ "type": "integer", "minimum": 1 })),
        "Tag": in_path("tag", reference("schemas", "Tag")),
        "OfTag": in_query("tag", reference("schemas", "Tag"), "Tag that all posts have."),
        "Limit": in_query(
            "limit",
            json!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT }),
            "Maximum number of entries on the page.",
        ),
        "Cursor": in_query(
            "cursor",
            json!({ "type": "string" }),
            "`next_cursor` of the page before, unmodified. It is opaque, and valid only for the same listing.",
        ),
        "After": in_query(
            "after",
            json!({ "type": "string", "pattern": name_pattern() }),
            "`next_after` of the page before, or any other name after which the page begins.",
        ),
        "Prefix": in_query(
            "prefix",
            json!({ "type": "string", "default": "" }),
            "Beginning of the names that are found.",
        ),
        "IdempotencyKey": {
            "name": "Idempotency-Key",
            "in": "header",
            "schema": { "type": "string", "pattern": key },
            "description": "Name of this request, chosen by the client. A repetition within 24 hours with the same \
                key and text stores nothing, and is answered 200 with the first result.",
        },
    })
}

/// Returns the headers of answers.
pub(super) fn headers() -> Value {
    let seconds = json!({ "type": "string", "pattern": "^[0-9]{1,20}$" });
    json!({
        "X-Content-Type-Options": {
            "required": true,
            "description": "A browser takes the content for what its type says.",
            "schema": { "const": "nosniff" },
        },
        "X-Request-Id": {
            "description": "Id of the request in the node's log: the client's `X-Request-Id`, if it has 1 to 64 \
                letters, digits, `-`, `_` and `.`, or a drawn one.",
            "schema": { "type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$" },
        },
        "WWW-Authenticate": {
            "required": true,
            "description": "Challenge of RFC 6750.",
            "schema": { "type": "string" },
        },
        "Sec-WebSocket-Version": {
            "required": true,
            "description": "Version of the WebSocket protocol that the server speaks.",
            "schema": { "const": "13" },
        },
        "Retry-After": {
            "required": true,
            "description": "Seconds after which the client may try again.",
            "schema": seconds,
        },
        "Retry-After-If-Known": {
            "description": "Seconds after which the client may try again.",
            "schema": seconds,
        },
    })
}

fn name_pattern() -> String {
    format!("^[a-z0-9_]{{1,{}}}$", Name::BYTES_MAX)
}

/// Pattern of the one spelling of an id.
const POST_ID: &str = "^[0-9]{1,20}$";
