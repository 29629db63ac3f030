//! Skills: texts that an agent reads when it needs them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use fabro_config::{check_link, check_owner, project_root};
use fabro_llm::ToolSpec;
use fabro_tools::{Call, Output, Tool};
use fabro_types::Permissions;
use fabro_types::control_files::{SKILL_DIRS, SKILL_FILE};
use serde_json::{Value, json};

use crate::documents::read_start;

/// The longest text of a skill, in bytes.
pub const SKILL_BYTES: usize = 128 * 1024;

/// The most skills that are read.
const MOST_SKILLS: usize = 200;

/// The length of a description in a prompt, in characters.
const DESCRIPTION_CHARS: usize = 500;

/// The size of the list of skills in a prompt, in bytes.
const LIST_BYTES: usize = 16 * 1024;

/// Why a skill of a project may not be read.
const OUTSIDE: &str =
    "a link leads out of the project; name the folder under `skills` of [run.agent]";

const NO_FRONT_MATTER: &str =
    "begin with a line `---`, then `name: …`, `description: …`, and `---`";
const NO_DESCRIPTION: &str = "add `description: …` to the lines between `---`";

/// Instructions that an agent can look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// What it is called.
    pub name: String,
    /// When to use it.
    pub description: String,
    /// The file it was read from; what it refers to is beside it.
    pub path: PathBuf,
    /// The text, without its front matter.
    pub body: String,
}

/// Why a file is not a skill.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", path.display())]
#[non_exhaustive]
pub struct SkillError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, or how to fix it.
    pub message: String,
}

impl Skill {
    /// Reads a skill from the text of its file: front matter between two lines `---` with `name`
    /// and `description`, then the body. Without a name it is called as the file's folder.
    ///
    /// # Errors
    ///
    /// The front matter or its description is missing.
    pub fn parse(path: &Path, text: &str) -> Result<Self, SkillError> {
        let path = path.to_owned();
        let error = |message: &str| SkillError { path: path.clone(), message: message.to_owned() };
        let (front, body) = split(text).ok_or_else(|| error(NO_FRONT_MATTER))?;
        let mut fields = fields(front);
        let description = fields.remove("description").filter(|text| !text.is_empty());
        let description = description.ok_or_else(|| error(NO_DESCRIPTION))?;
        let folder = path.parent().and_then(Path::file_name);
        let folder = || folder.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = fields.remove("name").filter(|name| !name.is_empty()).unwrap_or_else(folder);
        Ok(Self { name, description, path, body: body.trim().to_owned() })
    }
}

/// Reads the skills for agents that work in `work_dir`: those of its folders `.fabro/skills` and
/// `.claude/skills`, then those of `more`. Each folder in these with a `SKILL.md` is one. Of two with
/// one name, the one of the earlier folder counts. They are ordered by name; a file that is not valid
/// is reported, and the others are read. As with [`project_docs`](crate::project_docs), skills of
/// `work_dir` that lead out of the project, or that [`check_owner`] refuses, are not read; folders of `more` may
/// be anywhere.
pub fn read_skills(work_dir: &Path, more: &[PathBuf]) -> (Vec<Skill>, Vec<SkillError>) {
    let mut skills: BTreeMap<String, Skill> = BTreeMap::new();
    let mut errors = Vec::new();
    let dir = work_dir.canonicalize().unwrap_or_else(|_| work_dir.to_owned());
    let root = project_root(&dir);
    let own = SKILL_DIRS.map(|name| dir.join(name));
    let own = own.iter().map(|dir| (dir, Some(root)));
    for (dir, root) in own.chain(more.iter().map(|dir| (dir, None))) {
        // A folder that is not there has no skills.
        let Ok(entries) = dir.read_dir() else { continue };
        let mut paths: Vec<_> = entries.flatten().map(|it| it.path().join(SKILL_FILE)).collect();
        paths.sort();
        for path in paths.into_iter().filter(|path| path.exists()).take(MOST_SKILLS) {
            match read(&path, root) {
                Ok(skill) => {
                    skills.entry(skill.name.clone()).or_insert(skill);
                }
                Err(error) => errors.push(error),
            }
        }
    }
    (skills.into_values().take(MOST_SKILLS).collect(), errors)
}

/// The tool `use_skill`, which gives an agent the text of a skill. `None` without skills.
pub fn use_skill(skills: Vec<Skill>) -> Option<Arc<dyn Tool>> {
    if skills.is_empty() {
        return None;
    }
    let names: Vec<_> = skills.iter().map(|skill| Value::from(skill.name.as_str())).collect();
    let parameters = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "enum": names, "description": "Which skill."}},
        "required": ["name"],
        "additionalProperties": false,
    });
    let spec = ToolSpec {
        name: "use_skill".to_owned(),
        description: "Gives the text of a skill: how to do something, step by step. Read it \
            before you begin what it is about."
            .to_owned(),
        parameters: Arc::new(parameters),
    };
    Some(Arc::new(UseSkill { spec, skills }))
}

/// The skills as a list for a prompt, bounded; empty without skills.
pub(crate) fn list(skills: &[Skill]) -> String {
    let mut text = String::new();
    for (at, skill) in skills.iter().enumerate() {
        let words: Vec<_> = skill.description.split_whitespace().collect();
        let description: String = words.join(" ").chars().take(DESCRIPTION_CHARS).collect();
        let line = format!("- {}: {description}\n", skill.name);
        if text.len() + line.len() > LIST_BYTES {
            let _ = writeln!(text, "({} more skills are not listed)", skills.len() - at);
            break;
        }
        text.push_str(&line);
    }
    text
}

struct UseSkill {
    spec: ToolSpec,
    skills: Vec<Skill>,
}

#[async_trait]
impl Tool for UseSkill {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self) -> Permissions {
        Permissions::ReadOnly
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let name = call.arguments.get("name").and_then(Value::as_str).unwrap_or_default();
        let Some(skill) = self.skills.iter().find(|skill| skill.name == name) else {
            let names: Vec<_> = self.skills.iter().map(|skill| skill.name.as_str()).collect();
            let names = names.join(", ");
            return Output::error(format!("there is no skill `{name}`: there are {names}"));
        };
        let dir = skill.path.parent().unwrap_or(&skill.path).display();
        Output::ok(format!("Skill `{name}` (files it names are in {dir}):\n\n{}", skill.body))
    }
}

/// Reads a skill, which has to be below `root` if there is one.
fn read(path: &Path, root: Option<&Path>) -> Result<Skill, SkillError> {
    let error = |message: String| SkillError { path: path.to_owned(), message };
    let unreadable = |reason: String| error(format!("cannot be read: {reason}"));
    let real = path.canonicalize().map_err(|error| unreadable(error.to_string()))?;
    if root.is_some_and(|root| !real.starts_with(root)) {
        return Err(unreadable(OUTSIDE.to_owned()));
    }
    if let Some(root) = root {
        // Also the links to its folder: a skill names other files there.
        let folder = path.parent().map_or(Ok(()), |folder| check_link(folder, root));
        let checked = folder.and_then(|()| check_owner(path, root));
        checked.map_err(|reason| error(reason.to_string()))?;
    }
    let text = read_start(&real, SKILL_BYTES).map_err(|error| unreadable(error.to_string()))?;
    if text.len() > SKILL_BYTES {
        return Err(error(format!("shorten it to {SKILL_BYTES} bytes")));
    }
    Skill::parse(path, &text)
}

/// Front matter and body.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (first, rest) = text.split_once('\n')?;
    if first.trim_end() != "---" {
        return None;
    }
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((&rest[..at], &rest[at + line.len()..]));
        }
        at += line.len();
    }
    None
}

/// The texts of front matter by their keys. Of YAML this is what skills use: plain, quoted and
/// block scalars at the top level; other values are skipped.
fn fields(front: &str) -> BTreeMap<String, String> {
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    let mut key: Option<String> = None;
    for line in front.lines() {
        let is_more = line.starts_with([' ', '\t']) || line.trim().is_empty();
        if is_more {
            if let Some(value) = key.as_ref().and_then(|key| fields.get_mut(key)) {
                value.push(' ');
                value.push_str(line.trim());
            }
            continue;
        }
        key =
            line.split_once(':').filter(|(name, _)| !name.starts_with('#')).map(|(name, value)| {
                fields.insert(name.trim().to_owned(), scalar(value.trim()).to_owned());
                name.trim().to_owned()
            });
    }
    for value in fields.values_mut() {
        *value = unquoted(value.trim());
    }
    fields
}

/// The first line of a value; empty for the mark of a block scalar.
fn scalar(value: &str) -> &str {
    if matches!(value, "|" | ">" | "|-" | ">-" | "|+" | ">+") { "" } else { value }
}

fn unquoted(value: &str) -> String {
    if value.starts_with('"') {
        return serde_json::from_str(value).unwrap_or_else(|_| value.to_owned());
    }
    let inner = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\''));
    inner.map_or_else(|| value.to_owned(), |inner| inner.replace("''", "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(&str, &str, &str), &str>) {
        let skill = Skill::parse(Path::new("skills/pdf/SKILL.md"), text);
        let result = skill.map(|it| (it.name, it.description, it.body));
        let result = result.map_err(|error| error.to_string());
        let result = result
            .as_ref()
            .map(|(name, description, body)| (name.as_str(), description.as_str(), body.as_str()));
        assert_eq!(result.map_err(String::as_str), expected, "{text:?}");
    }

    #[test]
    fn front_matter() {
        check(
            "---\nname: forms\ndescription: Fill in forms: all of them\n---\n\n# Forms\n---\nx\n",
            Ok(("forms", "Fill in forms: all of them", "# Forms\n---\nx")),
        );
        check(
            "\u{feff}---\r\ndescription: \"a \\\"b\\\"\"\r\n---\r\nbody",
            Ok(("pdf", "a \"b\"", "body")),
        );
        check(
            "---\nname: 'it''s'\ndescription: >-\n  two\n  lines\nallowed-tools:\n  - x\n---\n",
            Ok(("it's", "two lines", "")),
        );
        let front = "skills/pdf/SKILL.md: begin with a line `---`, then `name: …`, `description: …`, and `---`";
        check("", Err(front));
        check("# Forms", Err(front));
        check("---\nname: x\n", Err(front));
        let description = "skills/pdf/SKILL.md: add `description: …` to the lines between `---`";
        check("---\nname: x\n---\n", Err(description));
    }

    #[test]
    fn the_first_folder_counts_and_invalid_files_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("p/.fabro/skills/one/SKILL.md", "---\nname: x\ndescription: first\n---\n"),
            ("b/two/SKILL.md", "---\nname: x\ndescription: second\n---\n"),
            ("b/three/SKILL.md", "---\ndescription: other\n---\n"),
            ("b/four/SKILL.md", "nothing"),
            ("b/long/SKILL.md", &"x".repeat(SKILL_BYTES + 1)),
            ("b/five/README.md", "no skill"),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let more = ["b", "none"].map(|it| dir.path().join(it));
        let (skills, errors) = read_skills(&dir.path().join("p"), &more);
        assert_eq!(list(&skills), "- three: other\n- x: first\n");
        let messages: Vec<_> = errors.iter().map(|error| error.message.as_str()).collect();
        assert_eq!(messages, [NO_FRONT_MATTER, "shorten it to 131072 bytes"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_to_protected_files_or_from_folders_that_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let skills = dir.path().join("project/.claude/skills");
        for (path, name) in
            [("outside/far", "far"), ("project/docs/near", "near"), ("project/.claude/own", "own")]
        {
            let path = dir.path().join(path);
            std::fs::create_dir_all(&path).unwrap();
            let text = format!("---\nname: {name}\ndescription: {name}\n---\n");
            std::fs::write(path.join("SKILL.md"), text).unwrap();
        }
        std::fs::create_dir_all(&skills).unwrap();
        std::fs::create_dir(dir.path().join("project/.fabro")).unwrap();
        for (path, link) in
            [("outside/far", "one"), ("project/docs/near", "two"), ("project/.claude/own", "three")]
        {
            std::os::unix::fs::symlink(dir.path().join(path), skills.join(link)).unwrap();
        }
        let read = |more: &[PathBuf]| {
            let (skills, errors) = read_skills(&dir.path().join("project"), more);
            (skills.into_iter().map(|it| it.name).collect::<Vec<_>>(), errors)
        };
        let own = vec!["own".to_owned()];
        let (found, errors) = read(&[]);
        assert_eq!((found, errors.len()), (own, 2));
        assert_eq!(errors[0].message, format!("cannot be read: {OUTSIDE}"));
        assert!(errors[1].message.contains("two is a link to"), "{}", errors[1]);
        let both = vec!["far".to_owned(), "own".to_owned()];
        assert_eq!(read(&[dir.path().join("outside")]), (both, errors));
    }

    #[test]
    fn the_list_is_bounded() {
        let skill = |at: usize| Skill {
            name: format!("s{at}"),
            description: "long ".repeat(1_000),
            path: PathBuf::new(),
            body: String::new(),
        };
        let skills: Vec<_> = (0..200).map(skill).collect();
        let text = list(&skills);
        assert!(text.len() < LIST_BYTES + 100, "{}", text.len());
        assert!(text.ends_with("more skills are not listed)\n"));
    }
}
