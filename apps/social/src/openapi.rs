//! OpenAPI 3.1 document of the HTTP API, served at `/api/v1/openapi.json`.
//!
//! ```text
//! operations ──► a table: parameters, bodies, answers, problems ─┐
//! schemas ─────► shapes of JSON, with the bounds of the code ───┼─► document() ──► one text, built once
//! problems ────► status and meaning of each problem ────────────┘
//! ```
//!
//! The document is written beside the routes, not on them: a handler stays as short as it is, and a new route
//! changes no type of the router. Tests keep the two together.
//!
//! Invariants, each kept by `apps/social/tests/node/openapi.rs`:
//! * The document and the router have the same paths and methods.
//! * An answer of the node has a status, a content type, headers and fields that the document lists.

mod operations;
mod problems;
mod schemas;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::{Map, Value, json};

/// Builds the route of the document, for a router with any state.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/api/v1/openapi.json", get(serve))
}

async fn serve() -> impl IntoResponse {
    static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str())
}

fn document() -> Value {
    let (mut paths, mut responses) = (Map::new(), Map::new());
    for operation in operations::all() {
        let path = paths.entry(format!("/api/v1{}", operation.path)).or_insert_with(|| json!({}));
        path[operation.method] = operation.to_json(&mut responses);
    }
    json!({
        "openapi": "3.1.1",
        "info": {
            "title": "throng message service",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
            "description": operations::ABOUT,
        },
        "paths": paths,
        "components": {
            "schemas": schemas::schemas(),
            "parameters": schemas::parameters(),
            "headers": schemas::headers(),
            "responses": responses,
            "securitySchemes": { "bearer": {
                "type": "http",
                "scheme": "bearer",
                "description": "The `token` of a registration or a login.",
            } },
        },
    })
}

/// Method of a path.
#[derive(Default)]
struct Operation {
    method: &'static str,
    /// Path below `/api/v1`.
    path: &'static str,
    /// Name of the operation, for generated clients.
    id: &'static str,
    summary: &'static str,
    description: Vec<String>,
    /// Names of parameters in [`schemas::parameters`].
    parameters: Vec<&'static str>,
    /// Name of the schema of the request's body.
    body: Option<&'static str>,
    needs_token: bool,
    answers: Vec<Success>,
    /// Names of problems in [`problems::ALL`].
    problems: BTreeSet<&'static str>,
}

/// Answer of an operation that has succeeded; failures are answered by a problem.
struct Success {
    status: u16,
    description: &'static str,
    /// Name of the schema of the answer's body.
    body: Option<&'static str>,
}

impl Operation {
    /// Returns the operation in JSON, and adds its problems to the responses that operations share.
    fn to_json(&self, shared: &mut Map<String, Value>) -> Value {
        let mut responses = Map::new();
        for Success { status, description, body } in &self.answers {
            let mut response = json!({ "description": description, "headers": every_answer() });
            if let Some(schema) = body {
                response["content"] =
                    json!({ "application/json": { "schema": reference("schemas", schema) } });
            }
            responses.insert(status.to_string(), response);
        }
        for (status, names) in self.problems_by_status() {
            match responses.get_mut(&status.to_string()) {
                // A status can belong to a view and to problems: a node that cannot write reports its health with 503.
                Some(response) => {
                    let mut problem = problems::response(status, &names);
                    response["content"][MEDIA_TYPE] = problem["content"][MEDIA_TYPE].take();
                }
                None => {
                    let name = format!("{status}.{}", names.join("."));
                    responses.insert(status.to_string(), reference("responses", &name));
                    shared.entry(name).or_insert_with(|| problems::response(status, &names));
                }
            }
        }
        let mut operation = json!({
            "operationId": self.id,
            "summary": self.summary,
            "responses": responses,
            "security": if self.needs_token { json!([{ "bearer": [] }]) } else { json!([]) },
        });
        if !self.description.is_empty() {
            operation["description"] = self.description.join(" ").into();
        }
        if !self.parameters.is_empty() {
            let parameters = self.parameters.iter().map(|name| reference("parameters", name));
            operation["parameters"] = parameters.collect();
        }
        if let Some(schema) = self.body {
            operation["requestBody"] = json!({
                "required": true,
                "content": { "application/json": { "schema": reference("schemas", schema) } },
            });
        }
        operation
    }

    fn problems_by_status(&self) -> BTreeMap<u16, Vec<&'static str>> {
        let mut sorted: BTreeMap<u16, Vec<&'static str>> = BTreeMap::new();
        for problem in problems::ALL.iter().filter(|problem| self.problems.contains(problem.name)) {
            sorted.entry(problem.status).or_default().push(problem.name);
        }
        sorted
    }
}

/// Returns the headers of every answer.
fn every_answer() -> Value {
    json!({
        "X-Content-Type-Options": reference("headers", "X-Content-Type-Options"),
        "X-Request-Id": reference("headers", "X-Request-Id"),
    })
}

fn reference(section: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{section}/{name}") })
}

/// Media type of problems.
const MEDIA_TYPE: &str = "application/problem+json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_of_an_operation_is_known_and_every_known_problem_is_used() {
        let used: BTreeSet<&str> =
            operations::all().iter().flat_map(|operation| operation.problems.clone()).collect();
        let known: BTreeSet<&str> = problems::ALL.iter().map(|problem| problem.name).collect();
        assert_eq!(known.len(), problems::ALL.len(), "a problem is listed twice");
        assert_eq!(problems::TABLE.trim().lines().count(), known.len(), "a line is malformed");
        assert_eq!(used, known);
    }
}
