//! Each dependency has a reason, on the line that declares it.

use super::Violation;
use super::tree::Tree;

/// Every dependency that is declared with a version ends in a comment that gives its purpose.
///
/// Dependencies on crates of this tree are exempt, and so are dependencies that `workspace = true`
/// takes from the root manifest, which has the reason.
pub(super) fn check_reasons(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| is_manifest(path)) {
        let mut in_dependencies = false;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if let Some(section) = line.strip_prefix('[') {
                let section = section.split(']').next().unwrap_or_default();
                in_dependencies = section.ends_with("dependencies");
                if section.contains("dependencies.") {
                    let message = "write the dependency on one line, with its reason at the end";
                    violations.push(Violation::new(path, index + 1, message));
                }
                continue;
            }
            let Some((name, value)) = line.split_once('=') else { continue };
            let key = name.trim();
            if !in_dependencies || !is_key(key) {
                continue;
            }
            let (value, reason) = split_comment(value);
            let here = key.ends_with(".path") || value.contains("path =");
            let at_root = key.ends_with(".workspace") || value.contains("workspace = true");
            if !here && !at_root && reason.is_none_or(str::is_empty) {
                let message = format!("{key} has no reason: end the line with `# its purpose`");
                violations.push(Violation::new(path, index + 1, message));
            }
        }
    }
    violations
}

/// The line of the manifest at `path` that declares `dependency`; the first if none does.
pub(super) fn line_of(tree: &Tree, path: &str, dependency: &str) -> usize {
    let declares = |line: &str| {
        line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with([' ', '.', '=']))
    };
    let text = tree.text(path).unwrap_or_default();
    text.lines().position(declares).map_or(1, |index| index + 1)
}

fn is_manifest(path: &str) -> bool {
    path == "Cargo.toml" || path.ends_with("/Cargo.toml")
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c))
}

/// A value and the comment after it.
fn split_comment(value: &str) -> (&str, Option<&str>) {
    let mut in_string = false;
    for (index, c) in value.char_indices() {
        match c {
            '"' => in_string = !in_string,
            '#' if !in_string => return (&value[..index], Some(value[index + 1..].trim())),
            _ => {}
        }
    }
    (value, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let check = |line: &str, section: &str| {
            let text = format!("[package]\nname = \"a\"\n{section}\n{line}\n[features]\nx = []");
            check_reasons(&Tree::of(&[("crates/a/Cargo.toml", &text)])).len()
        };
        let section = "[target.'cfg(unix)'.dependencies]";
        assert_eq!(check("a = \"1\"", section), 1);
        assert_eq!(check("a = \"1#2\"", "[workspace.dependencies]"), 1);
        assert_eq!(check("a = { version = \"1\" } #", section), 1);
        assert_eq!(check("a = \"1\" # counts things", section), 0);
        assert_eq!(check("a.workspace = true", section), 0);
        assert_eq!(check("a = { workspace = true, features = [\"b\"] }", section), 0);
        assert_eq!(check("a = { path = \"../a\" }", section), 0);
        assert_eq!(check("version = \"1\"", "[dev-dependencies.a]"), 1);
        assert_eq!(check("a = \"1\"", "[lints]"), 0);
    }

    #[test]
    fn the_line_of_a_dependency_is_found() {
        let tree = Tree::of(&[("Cargo.toml", "[dependencies]\nhttp-body = \"1\"\nhttp = \"1\"")]);
        assert_eq!(line_of(&tree, "Cargo.toml", "http"), 3);
        assert_eq!(line_of(&tree, "Cargo.toml", "gone"), 1);
    }
}
