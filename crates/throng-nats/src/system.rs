//! Questions to all servers by the system account: their versions, and whether they flush before they acknowledge.
//!
//! One request reaches all servers, and each answers for itself; nothing says how many there are. So answers are
//! collected until none has come for a while, and there must be as many with JetStream as a log has replicas.

use std::time::Duration;

use async_nats::{Client, StatusCode};
use futures_util::StreamExt;
use serde_json::Value;

use crate::error::NatsError;
use crate::nats::Failure;
use crate::version;

const QUESTION: &str = "$SYS.REQ.SERVER.PING.JSZ";

/// Time without an answer after which no other is expected.
const SILENCE: Duration = Duration::from_secs(1);

/// Refuses servers that are too old, or acknowledge before they flush.
pub(crate) async fn check(client: &Client, replicas: usize) -> Result<(), Failure> {
    let unavailable = |reason: String| Failure::Passing(NatsError::Unavailable(reason));
    let inbox = client.new_inbox();
    let mut answers =
        client.subscribe(inbox.clone()).await.map_err(|e| unavailable(e.to_string()))?;
    let asked = client.publish_with_reply(QUESTION, inbox, "{}".into()).await;
    asked.map_err(|e| unavailable(e.to_string()))?;
    let mut count = 0;
    while let Ok(Some(message)) = tokio::time::timeout(SILENCE, answers.next()).await {
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            let reason = "the credentials in the option `system` are not of the system account";
            return Err(Failure::Lasting(NatsError::Denied(reason.into())));
        }
        let answer: Value = serde_json::from_slice(&message.payload)
            .map_err(|e| unavailable(format!("a server answered something unknown: {e}")))?;
        count += usize::from(has_jetstream(&answer).map_err(Failure::Lasting)?);
    }
    if count < replicas {
        let reason = format!("{count} servers with JetStream answered, and {replicas} are needed");
        return Err(unavailable(reason));
    }
    Ok(())
}

/// Returns whether a server has JetStream, and then flushes before it acknowledges.
fn has_jetstream(answer: &Value) -> Result<bool, NatsError> {
    let text = |field| answer.pointer(field).and_then(Value::as_str).unwrap_or_default();
    let flag = |field| answer.pointer(field).and_then(Value::as_bool).unwrap_or_default();
    let server = text("/server/name");
    version::check(server, text("/server/ver"))?;
    match (flag("/data/disabled"), flag("/data/config/sync_always")) {
        (true, _) => Ok(false),
        (false, true) => Ok(true),
        // The servers leave out what is off.
        (false, false) => Err(NatsError::Unsynced { server: server.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(answer: &str) -> Result<bool, NatsError> {
        has_jetstream(&serde_json::from_str(answer).expect("an answer"))
    }

    #[test]
    fn a_server_that_acknowledges_before_it_flushes_is_refused_unless_it_has_no_streams() {
        let server = r#"{"server":{"name":"n1","ver":"2.15.1"},"data":"#;
        let synced = checked(&format!(r#"{server}{{"config":{{"sync_always":true}}}}}}"#));
        assert_eq!(synced, Ok(true));
        assert_eq!(checked(&format!(r#"{server}{{"disabled":true}}}}"#)), Ok(false));
        for data in [r#"{"config":{"sync_interval":120000000000}}"#, r#"{"config":{}}"#, "{}"] {
            let error = checked(&format!("{server}{data}}}"));
            assert_eq!(error, Err(NatsError::Unsynced { server: "n1".into() }), "{data}");
        }
        let old = r#"{"server":{"name":"n1","ver":"2.14.0"},"data":{"disabled":true}}"#;
        assert!(matches!(checked(old), Err(NatsError::Version { .. })));
    }
}
