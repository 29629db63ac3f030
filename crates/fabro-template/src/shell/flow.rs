//! Which variables, arguments and files hold values, and what becomes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::lists::Scanner;
use super::words::{Word, is_name};
use crate::misplaced::{Advice, Misplaced};

/// The name under which the arguments of the script and of its functions are known: `$1`, `$@`.
pub(super) const ARGUMENTS: &str = "@";

/// Values and variables that become part of a variable, of the arguments or of a file.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) values: Range<usize>,
    pub(super) heredocs: Range<usize>,
    /// By their place in [`Scanner::reads`].
    pub(super) reads: Range<usize>,
    /// The name that a word without anything else in it may be.
    pub(super) name: Option<String>,
    pub(super) to: String,
    /// The command with these arguments; they are taken only if it is a function.
    pub(super) command: Option<String>,
    /// As a command it would be one that values decide, or that evaluates them.
    pub(super) leads: bool,
    /// By `declare` and the like, which read `(…)` in the value for arrays.
    pub(super) by_declaration: bool,
}

/// Where code comes from.
#[derive(Default)]
pub(super) struct Sinks {
    /// Variables that are evaluated as code or in arithmetic.
    pub(super) evaluated: BTreeSet<String>,
    /// Variables that stand where the name of a command stands.
    pub(super) commands: BTreeSet<String>,
}

/// A file, as a target of flows; `None` when its name is not fixed.
pub(super) fn file(word: &Word) -> Option<String> {
    let name = word.fixed()?.trim_start_matches("./");
    (!name.is_empty()).then(|| format!("file {name}"))
}

/// Every name in a text that may be that of a variable, and the arguments when it reads them.
pub(super) fn names(text: &str) -> BTreeSet<String> {
    let is_positional = |rest: &str| {
        rest.trim_start_matches('{').starts_with(|c: char| c.is_ascii_digit() || "@*".contains(c))
    };
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut names: BTreeSet<String> =
        words.filter(|name| is_name(name)).map(str::to_owned).collect();
    if text.split('$').skip(1).any(is_positional) {
        names.insert(ARGUMENTS.to_owned());
    }
    names
}

/// How a target is named in messages.
fn place(to: &str, command: Option<&str>, what: &str) -> String {
    match (to.strip_prefix("file "), command) {
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
    /// The name of a variable that is read.
    pub(super) fn read_name(&self, at: usize) -> &str {
        let name = &self.text[self.reads[at].clone()];
        let is_argument = name.starts_with(|c: char| c.is_ascii_digit() || "@*".contains(c));
        if is_argument { ARGUMENTS } else { name }
    }

    /// The variables in these reads are evaluated.
    pub(super) fn evaluate_reads(&mut self, reads: Range<usize>) {
        for at in reads {
            let name = self.read_name(at).to_owned();
            self.sinks.evaluated.insert(name);
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
        let mut open: Vec<(String, bool)> =
            self.sinks.evaluated.iter().map(|name| (name.clone(), true)).collect();
        open.extend(self.sinks.commands.iter().map(|name| (name.clone(), false)));
        while let Some((to, evaluates)) = open.pop() {
            for &at in by_target.get(&*to).into_iter().flatten() {
                let flow = &flows[at];
                if !evaluates && !flow.leads {
                    continue;
                }
                let reads = flow.reads.clone().map(|at| self.read_name(at).to_owned());
                let names: Vec<String> = reads.chain(flow.name.clone()).collect();
                for name in names {
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
                let is_file = flow.to.starts_with("file ");
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
            && !flow.to.starts_with("file ")
            && (self.is_any_attributed
                || self.attributed.contains(&flow.to)
                || flow.by_declaration && self.arrays.contains(&flow.to))
    }
}
