//! How many turns of a model each node has used on a line: a scripted model continues there.

use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

/// Counts by node.
pub(crate) type Counts = OrdMap<Arc<str>, u32>;

/// The turns of a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Turns {
    counts: Counts,
    /// Of the elements of lists, by the node of their fan-out: each has a position of its own.
    lists: OrdMap<Arc<str>, Arc<ListTurns>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ListTurns {
    /// The counts when the first of its fan-outs began.
    before: Counts,
    elements: OrdMap<usize, Turns>,
}

impl Turns {
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(crate) fn of(&self, node: &str) -> u32 {
        self.counts.get(node).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, node: &Arc<str>, turns: u32) {
        self.counts.insert(Arc::clone(node), self.of(node).saturating_add(turns));
    }

    /// Those with which an element of a list begins: it continues after its own.
    pub(crate) fn of_element(&self, fan_out: &str, index: usize) -> Self {
        let Some(list) = self.lists.get(fan_out) else { return self.clone() };
        let own = list.elements.get(&index).cloned();
        own.unwrap_or_else(|| Self { counts: list.before.clone(), lists: OrdMap::new() })
    }

    /// Adds those of a branch since the fan-out, which began at `base`.
    pub(crate) fn absorb(&mut self, base: &Self, branch: &Self) {
        add_growth(&mut self.counts, &base.counts, &branch.counts);
        for (fan_out, list) in &branch.lists {
            self.lists.insert(Arc::clone(fan_out), Arc::clone(list));
        }
    }

    /// Keeps those of an element of a list.
    pub(crate) fn absorb_element(
        &mut self,
        base: &Self,
        branch: &Self,
        fan_out: &Arc<str>,
        index: usize,
    ) {
        if *branch == base.of_element(fan_out, index) {
            return;
        }
        take_most(&mut self.counts, &base.counts, &branch.counts);
        let list = self.lists.entry(Arc::clone(fan_out)).or_insert_with(|| {
            Arc::new(ListTurns { before: base.counts.clone(), elements: OrdMap::new() })
        });
        Arc::make_mut(list).elements.insert(index, branch.clone());
    }
}

/// Of each count that has grown the greater one.
pub(crate) fn take_most(into: &mut Counts, base: &Counts, branch: &Counts) {
    for item in base.diff(branch) {
        if let DiffItem::Add(node, count) | DiffItem::Update { new: (node, count), .. } = item {
            let most = into.get(node).copied().unwrap_or_default().max(*count);
            into.insert(Arc::clone(node), most);
        }
    }
}

pub(crate) fn add_growth(into: &mut Counts, base: &Counts, branch: &Counts) {
    for item in base.diff(branch) {
        if let DiffItem::Add(node, count) | DiffItem::Update { new: (node, count), .. } = item {
            let before = base.get(node).copied().unwrap_or_default();
            let sum = into.get(node).copied().unwrap_or_default();
            into.insert(Arc::clone(node), sum + count.saturating_sub(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One fan-out over a list, in which each element uses so many turns of `work`; what each began with.
    fn fan_out(line: &mut Turns, used: &[u32]) -> Vec<u32> {
        let base = line.clone();
        let work = Arc::from("work");
        let each = Arc::from("each");
        let mut began = Vec::new();
        for (index, turns) in used.iter().enumerate() {
            let mut branch = base.of_element(&each, index);
            began.push(branch.of("work"));
            branch.add(&work, *turns);
            line.absorb_element(&base, &branch, &each, index);
        }
        began
    }

    #[test]
    fn each_element_continues_after_its_own_turns() {
        let mut line = Turns::default();
        assert_eq!(fan_out(&mut line, &[2, 0, 1]), [0, 0, 0]);
        assert_eq!(line.of("work"), 2);
        assert_eq!(fan_out(&mut line, &[1, 1, 1, 1]), [2, 0, 1, 0]);
        assert_eq!(fan_out(&mut line, &[0, 0, 0, 0]), [3, 1, 2, 1]);
    }

    #[test]
    fn lists_nest() {
        let mut line = Turns::default();
        let each = Arc::from("outer");
        let round = |line: &mut Turns| {
            let base = line.clone();
            let mut began = Vec::new();
            for index in 0..2 {
                let mut branch = base.of_element(&each, index);
                began.push(fan_out(&mut branch, &[1, 2]));
                line.absorb_element(&base, &branch, &each, index);
            }
            began
        };
        assert_eq!(round(&mut line), [[0, 0], [0, 0]]);
        assert_eq!(round(&mut line), [[1, 2], [1, 2]]);
    }

    #[test]
    fn other_branches_add_up() {
        let work = Arc::from("work");
        let mut line = Turns::default();
        line.add(&work, 1);
        let base = line.clone();
        for turns in [1, 2] {
            let mut branch = base.clone();
            branch.add(&work, turns);
            line.absorb(&base, &branch);
        }
        assert_eq!(line.of("work"), 4);
    }
}
