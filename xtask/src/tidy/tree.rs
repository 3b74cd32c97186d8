//! The tree: every file that is, or would be, committed.
//!
//! Invariants: paths are relative to the root and use `/`; a file that is not UTF-8 is present with
//! an empty text; ignored files are absent.

use crate::steps::{Failure, Tool, root};
use crate::tidy::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// The input of all checks.
#[derive(Default)]
pub(super) struct Tree {
    files: BTreeMap<String, String>,
    /// The Rust files among them.
    sources: BTreeMap<String, Source>,
}

/// A `Cargo.toml` that describes a package.
pub(super) struct Manifest<'a> {
    pub(super) path: &'a str,
    /// The directory, ending in `/`.
    pub(super) dir: &'a str,
    pub(super) name: String,
    table: toml::Table,
}

/// The kind of a dependency.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DependencyKind {
    Normal,
    Build,
    Test,
}

impl Tree {
    /// Reads the workspace.
    ///
    /// # Errors
    /// If git does not list its files.
    pub(super) fn load() -> Result<Tree, Failure> {
        // Any owner of the clone is safe: listing its files runs no program of it.
        let list =
            Tool::new("git -c safe.directory=* ls-files --cached --others --exclude-standard -z")
                .output()
                .ok_or_else(|| Failure("git does not list the files of this tree".to_owned()))?;
        let mut files = BTreeMap::new();
        for path in list.split('\0').filter(|path| !path.is_empty()) {
            // A file that was deleted, but not yet from the index, counts as absent.
            let Ok(bytes) = std::fs::read(root().join(path)) else { continue };
            files.insert(path.to_owned(), String::from_utf8(bytes).unwrap_or_default());
        }
        Ok(Tree { sources: sources(&files), files })
    }

    /// A made-up tree.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Tree {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        let files = files.iter().map(own).collect();
        Tree { sources: sources(&files), files }
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// All files with their texts, by path.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The Rust files among them.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// The Rust files among them, in tokens.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.sources.iter().map(|(path, source)| (path.as_str(), source))
    }

    /// The Rust file at `path`, in tokens.
    pub(super) fn source(&self, path: &str) -> Option<&Source> {
        self.sources.get(path)
    }

    /// Whether `path` is a file or, if it ends in `/`, a directory that holds a file.
    pub(super) fn contains(&self, path: &str) -> bool {
        self.files.contains_key(path)
            || path.ends_with('/')
                && self
                    .files
                    .range(path.to_owned()..)
                    .next()
                    .is_some_and(|(p, _)| p.starts_with(path))
    }

    /// The directories directly under the root, each ending in `/`.
    pub(super) fn top_level_dirs(&self) -> BTreeSet<&str> {
        self.files.keys().filter_map(|path| path.find('/').map(|end| &path[..=end])).collect()
    }

    /// The manifests of all packages, also outside of the workspace.
    pub(super) fn manifests<'a>(&'a self) -> Vec<Manifest<'a>> {
        let manifest = |(path, text): (&'a str, &str)| {
            let dir = path.strip_suffix("Cargo.toml")?;
            let table: toml::Table = text.parse().ok()?;
            let name = table.get("package")?.get("name")?.as_str()?.to_owned();
            Some(Manifest { path, dir, name, table })
        };
        self.files().filter_map(manifest).collect()
    }

    /// The manifests of the workspace's members: the root manifest excludes all others.
    pub(super) fn members(&self) -> Vec<Manifest<'_>> {
        let root = self.text("Cargo.toml").and_then(|text| text.parse::<toml::Table>().ok());
        let root = root.unwrap_or_default();
        let excluded = root.get("workspace").and_then(|workspace| workspace.get("exclude"));
        let excluded: Vec<&str> = excluded
            .and_then(toml::Value::as_array)
            .map(|list| list.iter().filter_map(toml::Value::as_str).collect())
            .unwrap_or_default();
        let mut members = self.manifests();
        members.retain(|member| {
            !excluded.iter().any(|dir| member.dir.starts_with(&format!("{dir}/")))
        });
        members
    }

    /// Whether a Rust file holds nothing but tests: by its directory, or because its module was
    /// declared under `cfg(test)`.
    pub(super) fn is_test(&self, path: &str) -> bool {
        let by_dir = ["/tests/", "/benches/"].iter().any(|dir| path.contains(dir));
        by_dir
            || self.sources().any(|(parent, source)| {
                let dir = ["lib.rs", "main.rs", "mod.rs"]
                    .iter()
                    .find_map(|file| parent.strip_suffix(file).filter(|dir| dir.ends_with('/')))
                    .map_or_else(|| format!("{}/", parent.trim_end_matches(".rs")), str::to_owned);
                path.strip_prefix(&dir).is_some_and(|rest| {
                    source.declared_test_modules().any(|module| {
                        rest.strip_prefix(module)
                            .is_some_and(|end| end == ".rs" || end.starts_with('/'))
                    })
                })
            })
    }
}

fn sources(files: &BTreeMap<String, String>) -> BTreeMap<String, Source> {
    let rust = files.iter().filter(|(path, _)| path.ends_with(".rs"));
    rust.map(|(path, text)| (path.clone(), Source::parse(text))).collect()
}

impl Manifest<'_> {
    /// The packages of its dependencies by their own names, even if renamed, for every target.
    pub(super) fn dependencies(&self) -> Vec<(String, DependencyKind)> {
        let targets = self.table.get("target").and_then(toml::Value::as_table);
        let tables = targets.into_iter().flat_map(|targets| targets.values());
        let tables = tables.filter_map(toml::Value::as_table).chain([&self.table]);
        let kinds = [
            ("dependencies", DependencyKind::Normal),
            ("build-dependencies", DependencyKind::Build),
            ("dev-dependencies", DependencyKind::Test),
        ];
        let mut found = Vec::new();
        for table in tables {
            for (section, kind) in kinds {
                let Some(list) = table.get(section).and_then(toml::Value::as_table) else {
                    continue;
                };
                for (name, value) in list {
                    let package = value.get("package").and_then(toml::Value::as_str);
                    found.push((package.unwrap_or(name).to_owned(), kind));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_there_if_a_file_is_in_it() {
        let tree = Tree::of(&[("crates/a/src/lib.rs", ""), ("crates/ab.rs", "")]);
        assert!(tree.contains("crates/a/") && tree.contains("crates/ab.rs"));
        assert!(!tree.contains("crates/a") && !tree.contains("crates/b/"));
        assert_eq!(tree.top_level_dirs().into_iter().collect::<Vec<_>>(), ["crates/"]);
    }

    #[test]
    fn excluded_packages_are_no_members() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]\nexclude = [\"bench\"]"),
            ("crates/a/Cargo.toml", "[package]\nname = \"a\""),
            ("bench/Cargo.toml", "[package]\nname = \"bench\""),
        ]);
        let names = |list: Vec<Manifest<'_>>| -> Vec<String> {
            list.into_iter().map(|manifest| manifest.name).collect()
        };
        assert_eq!(names(tree.members()), ["a"]);
        assert_eq!(names(tree.manifests()), ["bench", "a"]);
    }

    #[test]
    fn dependencies_are_found_in_every_section_and_by_their_real_name() {
        let tree = Tree::of(&[(
            "Cargo.toml",
            "[package]\nname = \"a\"\n[dependencies]\nx.workspace = true\n\
             [target.'cfg(loom)'.dependencies]\nalias = { package = \"y\", version = \"1\" }\n\
             [dev-dependencies]\nz = \"1\"",
        )]);
        let mut names: Vec<_> =
            tree.manifests()[0].dependencies().into_iter().map(|(name, _)| name).collect();
        names.sort();
        assert_eq!(names, ["x", "y", "z"]);
    }

    #[test]
    fn test_files_are_known_by_directory_and_by_declaration() {
        let tree = Tree::of(&[
            ("c/src/lib.rs", "#[cfg(all(test, loom))]\nmod models;\nmod real;"),
            ("c/src/real.rs", "#[cfg(test)]\nmod tests_miri;"),
        ]);
        assert!(tree.is_test("c/src/models.rs") && tree.is_test("c/src/models/queue.rs"));
        assert!(tree.is_test("c/src/real/tests_miri.rs") && tree.is_test("c/tests/all.rs"));
        assert!(!tree.is_test("c/src/real.rs") && !tree.is_test("c/src/models_too.rs"));
    }
}
