//! Tells the program which versions it was built with, as the lock file states them.
//!
//! Sets `VERSION_<PACKAGE>` for every package named in [`RUNTIMES`]; a package that the lock file
//! does not have exactly once is a build error, since a row with a guessed version means nothing.

use serde::Deserialize;

const RUNTIMES: [&str; 9] =
    ["throng", "tokio", "actix", "kameo", "ractor", "tellus", "heed", "redb", "fjall"];

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
    let lock: LockFile = toml::from_str(&std::fs::read_to_string("Cargo.lock")?)?;
    for runtime in RUNTIMES {
        let versions: Vec<&str> = lock
            .package
            .iter()
            .filter(|package| package.name == runtime)
            .map(|package| package.version.as_str())
            .collect();
        let [version] = versions[..] else {
            return Err(format!("the lock file has {runtime} in the versions {versions:?}").into());
        };
        println!("cargo::rustc-env=VERSION_{}={version}", runtime.to_uppercase());
    }
    Ok(())
}
