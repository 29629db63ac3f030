//! Which variables, arguments, files and outputs of functions hold values, and what becomes of them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::scanner::{Flow, Read, Scanner};
use super::word::{Word, is_name};
use crate::code_variables::is_code_variable;
use crate::misplaced::{Advice, Misplaced};

/// The name under which the arguments of the script and of its functions are known: `$1`, `$@`.
pub(super) const ARGUMENTS: &str = "@";

/// The name under which all variables and functions are known together, as `declare -p` prints them.
const STATE: &str = "state";

/// The beginning of the name of a text that is a script if it is run, before its number in
/// [`Scanner::reads`].
const SCRIPT: &str = "script ";

/// The number of a text that is a script if it is run, which only this reading knows.
pub(super) fn script_number(name: &str) -> Option<usize> {
    name.strip_prefix(SCRIPT)?.parse().ok()
}

/// The file that a word names, as a target of flows; `None` when it names none.
pub(super) fn file(word: &Word) -> Option<String> {
    let name = match &word.file {
        Some(name) => name,
        None => word.assigned().rsplit('/').next().unwrap_or_default(),
    };
    (!name.is_empty()).then(|| format!("file {name}"))
}

/// The file that the source of a word names: the last part of its path, for the script may change its
/// directory. `$NAME` is a name of its own.
pub(super) fn file_in(source: &str) -> Cow<'_, str> {
    let name = source.rsplit(['/', '=']).next().unwrap_or_default();
    let is_sign = |c: char| matches!(c, '"' | '\'' | '{' | '}' | '\\');
    let name: Cow<'_, str> =
        if name.contains(is_sign) { name.replace(is_sign, "").into() } else { name.into() };
    let is_argument = |rest: &str| rest.len() == 1 && is_positional(rest);
    match &*name {
        "stdin" => "0".into(),
        rest if rest.strip_prefix('$').is_some_and(is_argument) => "$@".into(),
        _ => name,
    }
}

pub(super) fn is_positional(rest: &str) -> bool {
    rest.starts_with(|c: char| c.is_ascii_digit() || "@*".contains(c))
}

/// Every name in a text that may be that of a variable, and the arguments when it reads them.
pub(super) fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut names: BTreeSet<String> =
        words.filter(|name| is_name(name)).map(str::to_owned).collect();
    if text.split('$').skip(1).any(|rest| is_positional(rest.trim_start_matches('{'))) {
        names.insert(ARGUMENTS.to_owned());
    }
    names
}

/// How a target is named in messages.
fn place(to: &str, command: Option<&str>, what: &str) -> String {
    if to == "output exec" {
        return format!("in what `exec` writes to a file, which the script {what}");
    }
    if let Some(name) = to.strip_prefix("output ") {
        return format!("in the function `{name}`, whose output the script {what}");
    }
    match (to.strip_prefix("file "), command) {
        (Some("0"), _) => "in the input of a command that runs it".to_owned(),
        (Some(name), _) => format!("in the file `{name}`, which the script runs"),
        (None, Some(command)) => {
            format!("in the arguments of `{command}`, for the script {what} `$1` and the like")
        }
        (None, None) if to == ARGUMENTS => {
            format!("in the arguments of the script, which {what} them")
        }
        _ => format!("in the variable `{to}`, which the script {what}"),
    }
}

impl Scanner<'_> {
    /// The name of what is read, as a target of flows.
    pub(super) fn read_name(&self, at: usize) -> String {
        match &self.reads[at] {
            Read::Variable(span) => {
                let name = &self.text[span.clone()];
                if is_positional(name) { ARGUMENTS.to_owned() } else { name.to_owned() }
            }
            Read::File(span) => format!("file {}", file_in(&self.text[span.clone()])),
            Read::Output(span) => format!("output {}", &self.text[span.clone()]),
            Read::State => STATE.to_owned(),
            Read::Script(_) => format!("{SCRIPT}{at}"),
        }
    }

    /// The variable may hold the name of the file that this word names.
    pub(super) fn names_file(&mut self, variable: &str, word: &Word, command: Option<&str>) {
        let Some(file) = file(word) else { return };
        let variable = format!("file ${variable}");
        if file == variable {
            return;
        }
        for (from, to) in [(&file, &variable), (&variable, &file)] {
            self.assigned.push(Flow {
                name: Some(from.clone()),
                to: to.clone(),
                leads: true,
                command: command.map(str::to_owned),
                ..Flow::default()
            });
        }
    }

    /// Everything that came since these places becomes part of this.
    pub(super) fn flow_since(&mut self, (value, heredoc, read): (usize, usize, usize), to: &str) {
        self.assigned.push(Flow {
            values: value..self.next,
            heredocs: heredoc..self.heredocs.len(),
            reads: read..self.reads.len(),
            to: to.to_owned(),
            leads: true,
            ..Flow::default()
        });
    }

    /// What a flow takes from elsewhere.
    fn sources(&self, flow: &Flow) -> Vec<String> {
        let documents = &self.heredocs[flow.heredocs.clone()];
        let inside = documents.iter().flat_map(|document| document.reads.clone());
        flow.reads
            .clone()
            .chain(inside)
            .map(|at| self.read_name(at))
            .chain(flow.name.clone())
            .collect()
    }

    /// The variables in these reads are evaluated.
    pub(super) fn evaluate_reads(&mut self, reads: Range<usize>) {
        for at in reads {
            let name = self.read_name(at);
            self.sinks.evaluated.insert(name);
        }
    }

    /// The variables in these here-documents are evaluated.
    pub(super) fn evaluate_documents(&mut self, heredocs: Range<usize>) {
        for at in heredocs {
            self.evaluate_reads(self.heredocs[at].reads.clone());
        }
    }

    /// A word that becomes part of a variable or of something else.
    pub(super) fn flows(&mut self, word: &Word, to: &str) -> Option<&mut Flow> {
        let name = Some(word.assigned()).filter(|text| is_name(text)).map(str::to_owned);
        let has_heredocs = !word.heredocs.is_empty();
        if !word.has_values() && word.reads.is_empty() && name.is_none() && !has_heredocs {
            return None;
        }
        self.assigned.push(Flow {
            values: word.values.clone(),
            heredocs: word.heredocs.clone(),
            reads: word.reads.clone(),
            name,
            to: to.to_owned(),
            leads: true,
            ..Flow::default()
        });
        self.assigned.last_mut()
    }

    /// Refuses what reaches a place that is evaluated.
    pub(super) fn follow_flows(&mut self, unclear: Option<&Misplaced>) {
        let flows = std::mem::take(&mut self.assigned);
        let flows: Vec<Flow> =
            flows.into_iter().filter(|flow| self.takes_arguments(flow)).collect();
        let mut by_target: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, flow) in flows.iter().enumerate() {
            by_target.entry(&flow.to).or_default().push(at);
            if self.is_attributed(flow) {
                self.evaluate_reads(flow.reads.clone());
            }
        }
        let code = by_target.keys().filter(|to| is_code_variable(to)).map(|to| (*to).to_owned());
        self.sinks.evaluated.extend(code);
        let mut open: Vec<(String, bool)> =
            self.sinks.evaluated.iter().map(|name| (name.clone(), true)).collect();
        open.extend(self.sinks.commands.iter().map(|name| (name.clone(), false)));
        while let Some((to, evaluates)) = open.pop() {
            if evaluates && to == STATE {
                let kept = by_target.keys().filter(|to| !to.starts_with("file "));
                let kept = kept.filter(|to| !self.sinks.evaluated.contains(**to));
                let kept: Vec<String> = kept.map(|to| (*to).to_owned()).collect();
                self.sinks.evaluated.extend(kept.iter().cloned());
                open.extend(kept.into_iter().map(|to| (to, true)));
            }
            if evaluates && script_number(&to).is_some() {
                let (evaluated, commands) = self.follow_script(&to);
                for name in evaluated {
                    if self.sinks.evaluated.insert(name.clone()) {
                        open.push((name, true));
                    }
                }
                for name in commands {
                    if self.sinks.commands.insert(name.clone()) {
                        open.push((name, false));
                    }
                }
            }
            for &at in by_target.get(&*to).into_iter().flatten() {
                let flow = &flows[at];
                if !evaluates && !flow.leads {
                    continue;
                }
                for name in self.sources(flow) {
                    let sinks = &mut self.sinks;
                    let set = if evaluates { &mut sinks.evaluated } else { &mut sinks.commands };
                    if set.insert(name.clone()) {
                        open.push((name, evaluates));
                    }
                }
            }
        }
        for flow in &flows {
            let is_evaluated = self.is_attributed(flow) || self.sinks.evaluated.contains(&flow.to);
            let is_command = flow.leads && self.sinks.commands.contains(&flow.to);
            let command = flow.command.as_deref();
            if let Some(unclear) = unclear.filter(|_| command.is_none()) {
                self.refuse(flow.values.clone(), unclear);
            } else if is_evaluated {
                let is_file = flow.to.contains(' ');
                let advice = if is_file { Advice::InnerScript } else { Advice::Number };
                let why = Misplaced::of(place(&flow.to, command, "evaluates"), advice);
                self.refuse_all(flow.values.clone(), flow.heredocs.clone(), &why);
            } else if is_command {
                let place = place(&flow.to, command, "uses as the name of a command");
                let why = Misplaced::of(place, Advice::Name);
                self.refuse_all(flow.values.clone(), flow.heredocs.clone(), &why);
            }
        }
    }

    fn takes_arguments(&self, flow: &Flow) -> bool {
        flow.command.as_ref().is_none_or(|name| name == "set" || self.functions.contains(name))
    }

    fn is_attributed(&self, flow: &Flow) -> bool {
        flow.command.is_none()
            && !flow.to.contains(' ')
            && (self.is_any_attributed
                || self.attributed.contains(&flow.to)
                || flow.by_declaration && self.arrays.contains(&flow.to))
    }
}
