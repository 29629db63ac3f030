use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ContextPatch, Status};

/// Whether a text is a valid node id: letters, digits, `_`, `-` and `.`, but no leading `.`. A node id is
/// also a safe file name.
pub fn is_node_id(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !text.is_empty() && !text.starts_with('.') && text.bytes().all(is_part)
}

/// The path of a branch of a fan-out, or of the main line, which is empty. A branch is named after
/// its fan-out and its first node; a branch of a fan-out in a branch continues that path.
///
/// ```
/// use fabro_types::BranchPath;
///
/// let inner = BranchPath::new("checks@1/lint/deep@2#3/a");
/// assert_eq!(inner.parent(), BranchPath::new("checks@1/lint"));
/// assert!(inner.parent().parent().is_main());
/// let nodes: Vec<_> = inner.fan_outs().map(|fan_out| fan_out.node()).collect();
/// assert_eq!(nodes, ["checks", "deep"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BranchPath<'a>(&'a str);

impl<'a> BranchPath<'a> {
    /// The main line.
    pub const MAIN: Self = BranchPath("");

    /// The path that events write as this string.
    pub fn new(path: &'a str) -> Self {
        Self(path)
    }

    /// As events write it.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Whether all parts are valid branch names. A forged log may contain others.
    pub fn is_valid(self) -> bool {
        let is_name = |part: &str| {
            let name = part.trim_end_matches(|c: char| c.is_ascii_digit() || "@#[]".contains(c));
            is_node_id(name) || name.is_empty() && is_node_id(part)
        };
        self.is_main() || self.0.split('/').all(is_name)
    }

    /// True for the main line.
    pub fn is_main(self) -> bool {
        self.0.is_empty()
    }

    /// The line that the fan-out of this branch began on.
    pub fn parent(self) -> Self {
        let mut slashes = self.0.rmatch_indices('/').map(|(at, _)| at);
        slashes.nth(1).map_or(Self::MAIN, |at| Self(&self.0[..at]))
    }

    /// The name of the branch in its fan-out: its first node, with a number from the second branch
    /// with that node.
    pub fn name(self) -> &'a str {
        self.0.rsplit_once('/').map_or(self.0, |(_, name)| name)
    }

    /// The elements of lists that it is for, the outermost first, as `[3][0]`; empty in other branches.
    pub fn elements(self) -> String {
        let branches = self.0.split('/').skip(1).step_by(2);
        let element =
            |name: &'a str| name.ends_with(']').then(|| name.rfind('[').map(|at| &name[at..]));
        branches.filter_map(|name| element(name).flatten()).collect()
    }

    /// The path of the attempt of the fan-out that it is a branch of; `None` for the main line.
    pub fn fan_out_path(self) -> Option<&'a str> {
        self.0.rsplit_once('/').map(|(fan_out, _)| fan_out)
    }

    /// The fan-outs that this branch is inside of, the outermost first.
    pub fn fan_outs(self) -> impl Iterator<Item = FanOutName<'a>> {
        self.0.split('/').step_by(2).filter(|name| !name.is_empty()).map(FanOutName)
    }

    /// The branch without the visits and attempts of its fan-outs: the same each time that a loop comes to it.
    ///
    /// ```
    /// # use fabro_types::BranchPath;
    /// assert_eq!(BranchPath::new("checks@2#3/lint/deep@1/a#2").without_visits(), "checks/lint/deep/a#2");
    /// ```
    pub fn without_visits(self) -> String {
        let parts = self.0.split('/').enumerate();
        let parts =
            parts.map(|(at, part)| if at % 2 == 0 { FanOutName(part).node() } else { part });
        parts.collect::<Vec<_>>().join("/")
    }

    /// How many fan-outs this branch is inside of.
    pub fn depth(self) -> usize {
        self.fan_outs().count()
    }

    /// Splits the full name of a stage, `BRANCH/NODE@VISIT`, into the branch and the rest; one without
    /// a branch is of any line.
    pub fn split_stage(name: &'a str) -> (Option<Self>, &'a str) {
        match name.rsplit_once('/') {
            Some((branch, stage)) => (Some(Self(branch)), stage),
            None => (None, name),
        }
    }

    /// The full name of a stage on this line: `BRANCH/NODE@VISIT`.
    pub fn stage(self, node: &str, visit: u32) -> String {
        let slash = if self.is_main() { "" } else { "/" };
        format!("{self}{slash}{node}@{visit}")
    }

    /// The names that users may write for a stage on this line, most specific first: with the branch or
    /// its last parts, with the list elements or the last of them, and alone; each with and without
    /// the visit.
    ///
    /// ```
    /// use fabro_types::BranchPath;
    ///
    /// let names = BranchPath::new("each@1/work[3]").stage_names("check", 2);
    /// let names: Vec<&str> = names.iter().map(String::as_str).collect();
    /// assert_eq!(names[..2], ["each@1/work[3]/check@2", "each@1/work[3]/check"]);
    /// assert_eq!(names[2..], ["work[3]/check@2", "work[3]/check", "check[3]@2", "check[3]", "check@2", "check"]);
    /// ```
    pub fn stage_names(self, node: &str, visit: u32) -> Vec<String> {
        let elements = self.elements();
        let parts = |text: &'_ str, from: char| -> Vec<usize> {
            let after = text.match_indices(from).map(|(at, _)| at + usize::from(from == '/'));
            if text.is_empty() { Vec::new() } else { after.collect() }
        };
        let mut names = Vec::new();
        if !self.is_main() {
            let starts = std::iter::once(0).chain(parts(self.0, '/'));
            names.extend(starts.map(|start| format!("{}/{node}", &self.0[start..])));
        }
        names.extend(
            parts(&elements, '[').into_iter().map(|at| format!("{node}{}", &elements[at..])),
        );
        names.push(node.to_owned());
        names.into_iter().flat_map(|name| [format!("{name}@{visit}"), name]).collect()
    }

    /// The path of an attempt of a fan-out on this line: the beginning of the paths of its branches.
    pub fn fan_out(self, node: &str, visit: u32, attempt: u32) -> String {
        let attempt = if attempt > 1 { format!("#{attempt}") } else { String::new() };
        format!("{}{attempt}", self.stage(node, visit))
    }

    /// The path of a branch of a fan-out with this [path](Self::fan_out); `earlier` branches of it
    /// have the same first node.
    pub fn branch(fan_out: &str, target: &str, earlier: usize) -> Arc<str> {
        let number = if earlier == 0 { String::new() } else { format!("#{}", earlier + 1) };
        format!("{fan_out}/{target}{number}").into()
    }

    /// The path of the branch for one element of a list, counted from 0.
    pub fn element(fan_out: &str, target: &str, index: usize) -> Arc<str> {
        format!("{fan_out}/{target}[{index}]").into()
    }

    /// Whether this is a branch of any attempt of a fan-out on `line`, or a branch inside of one.
    pub fn is_of_fan_out(self, line: Self, node: &str, visit: u32) -> bool {
        let rest = self.0.strip_prefix(&line.fan_out(node, visit, 1));
        rest.is_some_and(|rest| rest.starts_with(['/', '#']))
    }

    /// Whether it is called so: by its path, or by the last parts of it.
    pub fn is_called(self, name: Self) -> bool {
        let rest = self.0.strip_suffix(name.0);
        rest.is_some_and(|rest| rest.is_empty() || (rest.ends_with('/') && !name.is_main()))
    }

    /// The path as names of git branches and folders have it: a branch in a branch stands beside that, not below it,
    /// and an element is `work-3`.
    ///
    /// ```
    /// use fabro_types::BranchPath;
    ///
    /// let name = |path| BranchPath::new(path).file_name();
    /// assert_eq!(name("checks@1/lint"), "checks@1/lint");
    /// assert_eq!(name("checks@1/lint/deep@2#3/work[4]"), "checks@1/lint.deep@2#3/work-4");
    /// ```
    pub fn file_name(self) -> String {
        let mut name = String::new();
        for (place, part) in self.0.split('/').enumerate() {
            match place {
                0 => {}
                _ if place % 2 == 1 => name.push('/'),
                _ => name.push('.'),
            }
            name.push_str(&part.replace('[', "-").replace(']', ""));
        }
        if name.strip_suffix(".lock").is_some() {
            // No reference of git ends like this.
            name.push('-');
        }
        name
    }

    /// Whether this is a branch inside of another one.
    pub fn is_inside(self, outer: Self) -> bool {
        if outer.is_main() {
            return !self.is_main();
        }
        self.0.strip_prefix(outer.0).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl std::fmt::Display for BranchPath<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.0)
    }
}

/// The name of a fan-out in the paths of its branches: its node and visit, from the second attempt
/// on with the number of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanOutName<'a>(&'a str);

impl<'a> FanOutName<'a> {
    /// Its node.
    pub fn node(self) -> &'a str {
        self.0.rsplit_once('@').map_or(self.0, |(node, _)| node)
    }
}

/// The node in the name of a stage, as in `work[3]/check@1`.
pub fn stage_node(name: &str) -> &str {
    let (_, stage) = BranchPath::split_stage(name);
    stage.split(['@', '[']).next().unwrap_or(stage)
}

/// The result of one branch, as `parallel.results` lists it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BranchResult {
    /// The branch's first node; of a list also the number of the element, as in `work[0]`.
    pub id: Arc<str>,
    /// How it ended; `skipped` when it was not needed.
    pub status: Status,
    /// The reason of a failure, or a remark.
    pub notes: Option<String>,
    /// The last answer given in the branch: a model's, or a command's output.
    pub response: Option<Arc<Value>>,
    /// What a branch that did not fail has made: the last validated output in it, else the last
    /// response, else the last command output.
    #[serde(default)]
    pub output: Option<Arc<Value>>,
    /// What its stages wrote to the context.
    pub updates: Option<ContextPatch>,
    /// The commit with the files of the branch, where it had a git worktree of its own.
    pub head_sha: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_the_line_a_branch_came_from() {
        let outer = BranchPath::branch(&BranchPath::MAIN.fan_out("checks", 1, 1), "lint", 0);
        let outer = BranchPath::new(&outer);
        let inner = BranchPath::branch(&outer.fan_out("deep", 2, 3), "a", 0);
        let inner = BranchPath::new(&inner);
        assert_eq!(inner.as_str(), "checks@1/lint/deep@2#3/a");
        assert_eq!(inner.parent(), outer);
        assert_eq!(outer.parent(), BranchPath::MAIN);
        assert_eq!([outer.depth(), inner.depth()], [1, 2]);
        assert_eq!((inner.name(), inner.fan_out_path()), ("a", Some("checks@1/lint/deep@2#3")));
        assert_eq!(&*BranchPath::branch("checks@1", "lint", 1), "checks@1/lint#2");
        let element = BranchPath::element(&inner.fan_out("each", 1, 1), "work", 12);
        assert_eq!(&*element, "checks@1/lint/deep@2#3/a/each@1/work[12]");
        assert_eq!(BranchPath::new(&element).parent(), inner);
        assert_eq!(BranchPath::new(&element).name(), "work[12]");
        assert_eq!(BranchPath::new("e@1/a[3]/f@1/b/g@1/c[0]").elements(), "[3][0]");
        assert_eq!(inner.elements() + &BranchPath::MAIN.elements(), "");
    }

    #[test]
    fn a_fan_out_knows_the_branches_of_all_its_attempts() {
        let main = |branch| BranchPath::new(branch).is_of_fan_out(BranchPath::MAIN, "fork", 1);
        for branch in ["fork@1/a", "fork@1#2/a", "fork@1/a/inner@1/b"] {
            assert!(main(branch), "{branch}");
        }
        for branch in ["", "fork@2/a", "fork@11/a", "refork@1/a", "outer@1/c/fork@1/a"] {
            assert!(!main(branch), "{branch}");
        }
        let line = BranchPath::new("outer@1/c");
        let inner = |branch| BranchPath::new(branch).is_of_fan_out(line, "fork", 1);
        assert!(inner("outer@1/c/fork@1#3/a"));
        for branch in ["outer@1/c", "outer@1/c#2/fork@1/a", "outer@1#2/c/fork@1/a", "fork@1/a"] {
            assert!(!inner(branch), "{branch}");
        }
    }

    #[test]
    fn branches_are_inside_of_the_lines_they_came_from() {
        let inside = |path, outer| BranchPath::new(path).is_inside(BranchPath::new(outer));
        assert!(inside("f@1/a/g@1/b", "f@1/a") && inside("f@1/a", ""));
        assert!(!inside("f@1/ab/g@1/b", "f@1/a") && !inside("f@1/a", "f@1/a") && !inside("", ""));
    }

    #[test]
    fn branches_are_called_by_the_end_of_their_path() {
        let called = |path, name| BranchPath::new(path).is_called(BranchPath::new(name));
        assert!(called("f@1/a[1]", "f@1/a[1]") && called("f@1/a[1]", "a[1]") && called("", ""));
        assert!(called("f@1/a[1]/g@1/b", "a[1]/g@1/b"));
        assert!(!called("f@1/aa", "a") && !called("f@1/a[11]", "1]") && !called("f@1/a", ""));
    }

    #[test]
    fn a_result_is_the_json_of_parallel_results() {
        let result = BranchResult {
            id: "lint".into(),
            status: Status::Succeeded,
            notes: None,
            response: Some(Arc::new("done".into())),
            output: None,
            updates: None,
            head_sha: None,
        };
        insta::assert_snapshot!(serde_json::to_string(&result).unwrap(), @r#"{"id":"lint","status":"succeeded","notes":null,"response":"done","output":null,"updates":null,"head_sha":null}"#);
    }
}
