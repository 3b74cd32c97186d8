//! Settings of the stream of a log, and whether a stream that was found has them.
//!
//! Two are for safety alone: with `discard: new` a full server refuses records in place of dropping old ones, and
//! with `deny_delete` none is taken from the middle. `deny_purge` stays off, because a log is trimmed by a purge. All
//! settings are compared that the client knows, except for [`FREE`], so that one that drops or moves records cannot
//! pass unseen.

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use serde_json::{Map, Value};

use crate::error::NatsError;

/// Settings that change no record, and are the operator's.
const FREE: &[&str] = &[
    "compression",
    "consumer_limits",
    "description",
    // It applies to messages with ids, of which a log has none.
    "duplicate_window",
    "metadata",
    "placement",
    "template_owner",
];

/// Returns the settings of the stream of a log.
pub(crate) fn needed(name: &str, replicas: usize) -> Config {
    Config {
        name: name.to_owned(),
        subjects: vec![subject(name)],
        num_replicas: replicas,
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        deny_delete: true,
        deny_purge: false,
        // A follower may be behind what a reader has seen acknowledged.
        allow_direct: false,
        max_consumers: -1,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_bytes: -1,
        max_message_size: -1,
        ..Config::default()
    }
}

/// Returns the subject of a log.
pub(crate) fn subject(name: &str) -> String {
    format!("throng.{name}")
}

/// Refuses a stream with other settings than needed.
pub(crate) fn check(found: &Config, needed: &Config) -> Result<(), NatsError> {
    let (all_found, all_needed) = (values(found), values(needed));
    let settings = all_needed.keys().chain(all_found.keys());
    for setting in settings.filter(|setting| !FREE.contains(&setting.as_str())) {
        let value = |all: &Map<String, Value>| all.get(setting).cloned().unwrap_or(Value::Null);
        let (found, needed_value) = (value(&all_found), value(&all_needed));
        if found != needed_value {
            return Err(NatsError::Setting {
                stream: needed.name.clone(),
                setting: setting.clone(),
                found: text(&found),
                needed: text(&needed_value),
            });
        }
    }
    Ok(())
}

fn text(value: &Value) -> String {
    if value.is_null() { "unset".into() } else { value.to_string() }
}

/// Returns the settings under the names that NATS has for them; those that are off may be absent.
fn values(config: &Config) -> Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(values)) => values,
        other => unreachable!("settings are sent to the server as an object: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_may_lose_or_move_records_is_refused_with_the_name_of_the_setting() {
        let fits = needed("a", 3);
        assert_eq!(check(&fits, &fits), Ok(()));
        type Spoil = fn(&mut Config);
        let spoil: [(&str, Spoil); 9] = [
            ("num_replicas", |config| config.num_replicas = 1),
            ("storage", |config| config.storage = StorageType::Memory),
            ("discard", |config| config.discard = DiscardPolicy::Old),
            ("deny_delete", |config| config.deny_delete = false),
            ("deny_purge", |config| config.deny_purge = true),
            ("allow_direct", |config| config.allow_direct = true),
            ("subjects", |config| config.subjects.push("b".into())),
            ("max_age", |config| config.max_age = std::time::Duration::from_secs(1)),
            ("allow_msg_ttl", |config| config.allow_message_ttl = true),
        ];
        for (setting, spoil) in spoil {
            let mut found = fits.clone();
            spoil(&mut found);
            let sentence = check(&found, &fits).expect_err(setting).to_string();
            assert!(sentence.contains(setting) && sentence.contains("stream edit a"), "{sentence}");
        }
        let described = Config { description: Some("ours".into()), ..fits.clone() };
        assert_eq!(check(&described, &fits), Ok(()));
    }
}
