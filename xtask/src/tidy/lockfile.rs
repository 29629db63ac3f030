//! How much code of others a build takes in.

use super::Problem;
use crate::workspace::Workspace;

/// Packages in Cargo.lock: ten above what there were when this was last set. A change that
/// needs more raises it in the same commit and says why in `docs/decisions.md`.
const CEILING: usize = 450;

/// New dependencies are a decision, not an accident.
pub(super) fn package_ceiling(workspace: &Workspace) -> Vec<Problem> {
    let lock = workspace.file("Cargo.lock").unwrap_or_default();
    let packages = lock.lines().filter(|line| line.trim() == "[[package]]").count();
    if packages <= CEILING {
        return Vec::new();
    }
    let message = format!("has {packages} packages, and {CEILING} are allowed");
    vec![Problem::new("Cargo.lock", 0, message)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said;

    #[test]
    fn too_many_packages_are_seen() {
        let check = |packages: usize| {
            said(package_ceiling, &[("Cargo.lock", &"[[package]]\nname = 'a'\n".repeat(packages))])
        };
        assert_eq!(check(450), "");
        assert_eq!(check(451), "Cargo.lock: has 451 packages, and 450 are allowed");
    }
}
