//! Requests that schemathesis draws from the OpenAPI document of a running node.
//!
//! schemathesis is a program in Python. This file installs it into a virtual environment under `target`, so that
//! nothing else on the machine changes. `xtask/schemathesis.toml` has the exceptions from its checks.

use crate::node;
use crate::steps::{Failure, Tool, root};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// Version that is installed; another version may draw and check other requests.
const VERSION: &str = "4.32.5";

/// Number of requests that are drawn for an operation and a phase, if no other is asked for.
const EXAMPLES: u64 = 30;

/// Runs all checks against a node, without a token and with one.
///
/// # Errors
/// If a check fails, or schemathesis cannot be installed.
pub(crate) fn run(examples: Option<u64>) -> Result<(), Failure> {
    let program = ensure_schemathesis()?;
    let node = Tool::new("cargo build --locked -p social")
        .arg("--message-format=json-render-diagnostics")
        .build("social")?;
    let examples = examples.unwrap_or(EXAMPLES).to_string();
    let config = root().join("xtask/schemathesis.toml").display().to_string();
    let draw = |address: &str| {
        Tool::program(&program)
            // schemathesis writes files into the current directory.
            .in_directory(&environment())
            .args(&["--config-file", &config, "run"])
            .arg(&format!("http://{address}/api/v1/openapi.json"))
            .args(&["--max-examples", &examples])
    };
    // It draws more requests than the limits of an account admit.
    node::with_node(Command::new(node).args(["serve", "--unlimited"]), "openapi", |address| {
        draw(address).run()?;
        let token = populate(address)?;
        draw(address)
            .args(&["--header", &format!("Authorization: Bearer {token}")])
            // They revoke the token.
            .args(&["--exclude-operation-id", "logOut"])
            .args(&["--exclude-operation-id", "logOutEverywhere"])
            .run()
    })
}

/// Registers a user, and returns a token.
fn populate(address: &str) -> Result<String, Failure> {
    let user = r#"{"name":"schemathesis","password":"correct horse"}"#;
    let session = node::request(address, "POST /api/v1/users", user)?;
    let session: Value = serde_json::from_str(&session)
        .map_err(|error| Failure(format!("the session {session} is not JSON: {error}")))?;
    let token = session["token"].as_str().map(str::to_owned);
    token.ok_or_else(|| Failure(format!("the session {session} has no token")))
}

/// Installs schemathesis if it is missing, and returns its path.
fn ensure_schemathesis() -> Result<PathBuf, Failure> {
    let environment = environment();
    let program = environment.join("bin/schemathesis");
    let version = Tool::program(&program).arg("--version").output();
    if version.is_some_and(|version| version.contains(VERSION)) {
        return Ok(program);
    }
    let installed =
        Tool::new("python3 -m venv").arg(&environment.display().to_string()).run().and_then(|()| {
            let pip = Tool::program(&environment.join("bin/pip"));
            pip.args(&["install", "--quiet", &format!("schemathesis=={VERSION}")]).run()
        });
    installed.map(|()| program).map_err(|Failure(why)| {
        Failure(format!(
            "the run openapi needs schemathesis {VERSION}, and installing it failed ({why}): \
             install Python 3 with its module venv, or put that version into target/schemathesis"
        ))
    })
}

/// Returns the directory of the virtual environment.
fn environment() -> PathBuf {
    root().join("target/schemathesis")
}
