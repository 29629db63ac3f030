//! Counts the model turns that each node has used on a line. A scripted model continues from there.

use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

/// Counts by node.
pub(crate) type Counts = OrdMap<Arc<str>, u32>;

/// The turns of a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Turns {
    counts: Counts,
    /// The turns of list elements, by fan-out node. Each element has its own position.
    lists: OrdMap<Arc<str>, Arc<ListTurns>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ListTurns {
    /// The counts when its first fan-out started.
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

    /// The turns with which a list element starts: it continues from its own earlier turns.
    pub(crate) fn of_element(&self, fan_out: &str, index: usize) -> Self {
        let Some(list) = self.lists.get(fan_out) else { return self.clone() };
        let own = list.elements.get(&index).cloned();
        own.unwrap_or_else(|| Self { counts: list.before.clone(), lists: OrdMap::new() })
    }

    /// Adds the turns that a branch used since the fan-out, which started at `base`.
    pub(crate) fn absorb(&mut self, base: &Self, branch: &Self) {
        add_growth(&mut self.counts, &base.counts, &branch.counts);
        for (fan_out, list) in &branch.lists {
            self.lists.insert(Arc::clone(fan_out), Arc::clone(list));
        }
    }

    /// Records the turns of a list element.
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

/// Merges grown counts by maximum.
pub(crate) fn take_most(into: &mut Counts, base: &Counts, branch: &Counts) {
    for item in base.diff(branch) {
        if let DiffItem::Add(node, count) | DiffItem::Update { new: (node, count), .. } = item {
            let most = into.get(node).copied().unwrap_or_default().max(*count);
            into.insert(Arc::clone(node), most);
        }
    }
}

/// Merges grown counts by adding the growth.
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

    /// Runs a fan-out over a list in which each element uses `used` turns of `work`. Returns the count
    /// that each element started with.
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
    fn turns_of_plain_branches_are_summed() {
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
