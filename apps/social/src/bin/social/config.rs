//! Settings from a file, the environment and the command line.
//!
//! ```text
//! command line ► environment ► file ► default        the first that has a value wins
//! ```
//!
//! clap's definition of `social serve` is the only definition of a setting: a key of the file is the
//! name of a long flag without its dashes, and a value is checked by the parser of the flag. The
//! values of the file replace the defaults in the definition, and the command line is parsed again;
//! clap then gives flags and the environment precedence.
//!
//! Invariants: a file is read only if `--config` or `THRONG_CONFIG` names it. Every value in it is
//! checked, also a value that a flag overrides.

use std::any::TypeId;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Arguments that name the file of settings and show the outcome.
#[derive(Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct ConfigArgs {
    /// TOML file of settings, with the names of the long flags as keys; flags and the environment
    /// override it. No file is read without this setting
    #[arg(long, value_name = "FILE", env = "THRONG_CONFIG")]
    config: Option<PathBuf>,

    /// Print all settings and where each comes from, as a file for `--config`, and exit
    #[arg(long)]
    pub(crate) print_config: bool,
}

/// Names of the flags that are no settings: they choose the file, or print.
const NO_SETTINGS: [&str; 3] = ["config", "print-config", "help"];

const SERVE: &str = "serve";

/// Command line, merged with the environment and the file.
#[derive(Debug)]
pub(crate) struct Loaded {
    command: Command,
    pub(crate) matches: ArgMatches,
    /// Keys that the file sets.
    in_file: Vec<String>,
}

/// Error in a file of settings; its text names the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read the settings in {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}:{line}: the file is not TOML: {reason}")]
    Malformed { path: PathBuf, line: usize, reason: String },
    #[error("{path}:{line}: there is no setting {key:?}{nearest}; see `social serve --help`")]
    UnknownKey { path: PathBuf, line: usize, key: String, nearest: String },
    #[error("{path}:{line}: the value of {key} must be {wanted}, not {found}")]
    WrongType { path: PathBuf, line: usize, key: String, wanted: &'static str, found: &'static str },
    #[error("{path}:{line}: invalid value {value:?} for {key}: {reason}")]
    InvalidValue { path: PathBuf, line: usize, key: String, value: String, reason: String },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The command line or the environment is wrong, or asks for help.
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    /// The file is missing or wrong.
    #[error(transparent)]
    File(#[from] ConfigError),
}

/// Parses `line` as `command`, with the file that it names, if any.
pub(crate) fn load(command: Command, line: Vec<OsString>) -> Result<Loaded, LoadError> {
    let matches = command.clone().try_get_matches_from(&line)?;
    let path =
        matches.subcommand_matches(SERVE).and_then(|serve| serve.get_one::<PathBuf>("config"));
    let Some(path) = path.cloned() else {
        return Ok(Loaded { command, matches, in_file: Vec::new() });
    };
    let (command, in_file) = with_file(command, &path)?;
    let matches = command.clone().try_get_matches_from(&line)?;
    Ok(Loaded { command, matches, in_file })
}

/// Makes the values of a file the defaults of the command; returns the keys of the file, too.
fn with_file(command: Command, path: &Path) -> Result<(Command, Vec<String>), ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let line_of =
        |at: usize| text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
    let table = DeTable::parse(&text).map_err(|error| ConfigError::Malformed {
        path: path.to_owned(),
        line: line_of(error.span().map_or(0, |span| span.start)),
        reason: error.message().to_owned(),
    })?;
    let mut set = Vec::new();
    let mut filled = command.clone();
    for (key, value) in table.get_ref() {
        let line = line_of(key.span().start);
        let key: &str = key.get_ref();
        let Some(setting) = settings(&command).find(|setting| setting.get_long() == Some(key))
        else {
            let nearest = nearest(&command, key)
                .map_or_else(String::new, |nearest| format!("; did you mean {nearest:?}?"));
            let (path, key) = (path.to_owned(), key.to_owned());
            return Err(ConfigError::UnknownKey { path, line, key, nearest });
        };
        let values = texts(setting, value).map_err(|(wanted, found)| {
            let (path, key) = (path.to_owned(), key.to_owned());
            ConfigError::WrongType { path, line, key, wanted, found }
        })?;
        for value in &values {
            check(&command, setting, value).map_err(|reason| {
                let (path, key, value) = (path.to_owned(), key.to_owned(), value.clone());
                ConfigError::InvalidValue { path, line, key, value, reason }
            })?;
        }
        let id = setting.get_id().clone();
        let default = move |arg: Arg| arg.default_values(values);
        filled = if command.get_arguments().any(|arg| *arg.get_id() == id) {
            filled.mut_arg(id, default)
        } else {
            filled.mut_subcommand(SERVE, |serve| serve.mut_arg(id, default))
        };
        set.push(key.to_owned());
    }
    Ok((filled, set))
}

/// Returns the settings of a node: those of all commands, and those of `serve`.
fn settings(command: &Command) -> impl Iterator<Item = &Arg> {
    let serve = command.find_subcommand(SERVE).into_iter().flat_map(Command::get_arguments);
    let global = command.get_arguments().filter(|arg| arg.is_global_set());
    serve
        .chain(global)
        .filter(|arg| arg.get_long().is_some_and(|long| !NO_SETTINGS.contains(&long)))
}

/// Returns the value of a setting in the file as texts of the command line.
///
/// # Errors
/// The type of the value that the setting wants, and its actual type.
fn texts(
    setting: &Arg,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<String>, (&'static str, &'static str)> {
    let text = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
    let value = value.get_ref();
    let (wanted, texts) = match Kind::of(setting) {
        Kind::Switch => ("true or false", value.as_bool().map(|on| vec![on.to_string()])),
        Kind::Number => {
            // Digits may be grouped by underscores, which clap does not know.
            let number = value.as_integer().filter(|number| number.radix() == 10);
            ("a whole number", number.map(|number| vec![number.as_str().replace('_', "")]))
        }
        Kind::List => {
            let array = value.as_array();
            let texts = array.map(|array| array.iter().map(|item| text(item.get_ref())).collect());
            ("an array of strings", texts.flatten())
        }
        Kind::Text => ("a string", text(value).map(|text| vec![text])),
    };
    texts.ok_or((wanted, value.type_str()))
}

/// Type of a setting's value in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Switch,
    Number,
    List,
    Text,
}

impl Kind {
    fn of(setting: &Arg) -> Kind {
        let value = setting.get_value_parser().type_id();
        let numbers = [TypeId::of::<usize>(), TypeId::of::<u64>(), TypeId::of::<u32>()];
        if matches!(setting.get_action(), ArgAction::SetTrue) {
            Kind::Switch
        } else if matches!(setting.get_action(), ArgAction::Append) {
            Kind::List
        } else if numbers.iter().any(|number| value == *number) {
            Kind::Number
        } else {
            Kind::Text
        }
    }
}

/// Checks a value as if it stood behind the setting's flag; returns the reason if it is invalid.
fn check(command: &Command, setting: &Arg, value: &str) -> Result<(), String> {
    if Kind::of(setting) == Kind::Switch {
        return Ok(()); // A switch takes no value on the command line, and its type is checked.
    }
    let flag = format!("--{}={value}", setting.get_long().unwrap_or_default());
    let parsed = command.clone().try_get_matches_from(["social", SERVE, &flag]);
    parsed.map(drop).map_err(|error| match std::error::Error::source(&error) {
        Some(reason) => reason.to_string(),
        None => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(valid)) => format!("it must be {}", valid.join(" or ")),
            _ => error.kind().to_string(),
        },
    })
}

/// Returns the setting whose name is most like `key`, if any is.
fn nearest(command: &Command, key: &str) -> Option<String> {
    let line = ["social".to_owned(), SERVE.to_owned(), format!("--{key}")];
    let error = command.clone().try_get_matches_from(line).err()?;
    match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(flag)) if error.kind() == ErrorKind::UnknownArgument => {
            Some(flag.trim_start_matches('-').to_owned())
        }
        _ => None,
    }
}

impl Loaded {
    /// Returns all settings of `social serve` as a file for `--config`, with a comment that names the
    /// source of each value. A setting that hides its environment variable is a secret, and is not
    /// shown.
    pub(crate) fn to_toml(&self) -> String {
        let mut text = String::new();
        let Some(serve) = self.matches.subcommand_matches(SERVE) else { return text };
        let mut group = None;
        for setting in settings(&self.command) {
            let Some(key) = setting.get_long() else { continue };
            if group != Some(setting.get_help_heading()) {
                group = Some(setting.get_help_heading());
                let heading = setting.get_help_heading().unwrap_or("Options");
                let _ = writeln!(text, "{}# {heading}", if text.is_empty() { "" } else { "\n" });
            }
            let id = setting.get_id().as_str();
            let source = match serve.value_source(id) {
                Some(ValueSource::CommandLine) => "flag",
                Some(ValueSource::EnvVariable) => "environment",
                _ if self.in_file.iter().any(|set| set == key) => "file",
                _ => "default",
            };
            // Writing into a string cannot fail.
            let _ = match value_in_toml(setting, serve) {
                _ if setting.is_hide_env_values_set() => {
                    writeln!(text, "# {key} is a secret # {source}")
                }
                Some(value) => writeln!(text, "{key} = {value} # {source}"),
                None => writeln!(text, "# {key} has no value # {source}"),
            };
        }
        text
    }
}

/// Returns the effective value of a setting in TOML, if it has one.
fn value_in_toml(setting: &Arg, serve: &ArgMatches) -> Option<String> {
    let id = setting.get_id().as_str();
    let kind = Kind::of(setting);
    if kind == Kind::Switch {
        return Some(serve.get_flag(id).to_string());
    }
    let quoted = |value: &str| toml::Value::String(value.to_owned()).to_string();
    let mut raw = serve.get_raw(id)?.map(|value| value.to_string_lossy());
    Some(match kind {
        Kind::List => {
            format!("[{}]", raw.map(|value| quoted(&value)).collect::<Vec<_>>().join(", "))
        }
        Kind::Switch | Kind::Number => raw.next()?.into_owned(),
        Kind::Text => quoted(&raw.next()?),
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn every_setting_has_the_environment_variable_of_its_name_and_a_heading() {
        let command = Cli::command();
        let mut settings_seen = 0;
        for setting in settings(&command) {
            let key = setting.get_long().unwrap();
            let variable = format!("THRONG_{}", key.to_uppercase().replace('-', "_"));
            assert_eq!(setting.get_env().and_then(|name| name.to_str()), Some(&*variable));
            assert!(setting.get_help_heading().is_some(), "{key}");
            settings_seen += 1;
        }
        assert!(settings_seen >= 10, "{settings_seen}");
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret =
            Arg::new("key").long("key").env("THRONG_KEY_OF_THE_TEST").hide_env_values(true);
        let command = Cli::command().mut_subcommand(SERVE, |serve| serve.arg(secret));
        let line = ["social", SERVE, "--key", "hunter2"].map(Into::into).to_vec();
        let text = load(command, line).unwrap().to_toml();
        assert!(text.contains("key is a secret # flag") && !text.contains("hunter2"), "{text}");
    }
}
