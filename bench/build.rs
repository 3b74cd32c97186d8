//! Passes the versions of the measured packages, from the lock file, to the program, and a mark of its
//! sources.
//!
//! Sets `VERSIONS` to the version of every package named in [`PACKAGES`], as `NAME=VERSION`. A package that is not in the
//! lock file exactly once is a build error, since a row must not state a guessed version. `rust`
//! is the release of the compiler, whose standard library has the threads. Sets `BUILD`
//! to the time of this build, which passes only if one of [`SOURCES`] has changed.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;

const PACKAGES: [&str; 16] = [
    "throng",
    "tokio",
    "axum",
    "smol",
    "actix",
    "kameo",
    "ractor",
    "tellus",
    "xtra",
    "heed",
    "redb",
    "fjall",
    "tokio-tungstenite",
    "futures-channel",
    "kanal",
    "oneshot",
];

const SOURCES: [&str; 12] = [
    "build.rs",
    "src",
    "steps/src",
    "workloads.toml",
    "runtimes.toml",
    "suite.toml",
    "../apps/social/src",
    "../crates/throng/src",
    "../crates/throng-durable/src",
    "../crates/throng-macros/src",
    "../crates/throng-node/src",
    "../crates/throng-store/src",
];

#[derive(Deserialize)]
struct LockFile {
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=Cargo.lock");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    let built = SystemTime::now().duration_since(UNIX_EPOCH)?;
    println!("cargo::rustc-env=BUILD={}", built.as_nanos());
    let lock: LockFile = toml::from_str(&std::fs::read_to_string("Cargo.lock")?)?;
    let mut known = format!("rust={}", compiler()?);
    for measured in PACKAGES {
        let versions = lock.package.iter().filter(|package| package.name == measured);
        let versions: Vec<&str> = versions.map(|package| package.version.as_str()).collect();
        let [version] = versions[..] else {
            return Err(
                format!("expected a single version of {measured}, found {versions:?}").into()
            );
        };
        known += &format!(" {measured}={version}");
    }
    println!("cargo::rustc-env=VERSIONS={known}");
    Ok(())
}

fn compiler() -> Result<String, Box<dyn std::error::Error>> {
    let compiler = std::env::var_os("RUSTC").ok_or("cargo names the compiler")?;
    let told = String::from_utf8(Command::new(compiler).arg("--version").output()?.stdout)?;
    let release = told.split_whitespace().nth(1).ok_or("the compiler tells its release")?;
    Ok(release.to_owned())
}
