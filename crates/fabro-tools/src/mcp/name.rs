use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

/// The longest name that every provider takes.
const LONGEST: usize = 64;

/// What the model calls a tool: `mcp__server__tool` of letters, digits, `_` and `-`, at most 64 of
/// them. Where that is too long or taken, the end makes room for eight digits of a hash over the
/// real names, so that a name stays the same from session to session.
pub(crate) fn unique(server: &str, tool: &str, taken: &mut BTreeSet<String>) -> String {
    let plain = prefix(server) + &clean(tool);
    let mut name = plain.clone();
    let mut round = 0_u32;
    while name.len() > LONGEST || taken.contains(&name) {
        let hash = hash(server, tool, round);
        // The name is ASCII by now.
        name = format!("{}_{hash}", &plain[..plain.len().min(LONGEST - hash.len() - 1)]);
        round += 1;
    }
    taken.insert(name.clone());
    name
}

/// What the names of a server's tools begin with.
pub fn prefix(server: &str) -> String {
    format!("mcp__{}__", clean(server))
}

fn clean(name: &str) -> String {
    let ok = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.chars().map(|c| if ok(c) { c } else { '_' }).collect()
}

fn hash(server: &str, tool: &str, round: u32) -> String {
    let mut hasher = Sha256::new();
    hasher.update(server);
    // Neither a name of a server nor one of a tool has it in the settings or on the wire.
    hasher.update([0]);
    hasher.update(tool);
    hasher.update(round.to_le_bytes());
    let digest = hasher.finalize();
    let short = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    format!("{short:08x}")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn names(pairs: &[(&str, &str)]) -> String {
        let mut taken = BTreeSet::new();
        let names: Vec<_> = pairs.iter().map(|(s, t)| unique(s, t, &mut taken)).collect();
        assert!(names.iter().all(|name| name.len() <= LONGEST));
        assert_eq!(taken.len(), pairs.len());
        names.join("\n")
    }

    #[test]
    fn names_are_clean_short_and_unique() {
        let long = "long".repeat(30);
        assert_snapshot!(names(&[("git", "log-all"), ("my server", "été/日本"), ("a", "b"), ("a", "b"), ("a", "b__c"), ("a__b", "c"), ("", ""), ("s", &long), (&long, "t")]), @r"
        mcp__git__log-all
        mcp__my_server___t____
        mcp__a__b
        mcp__a__b_7333498c
        mcp__a__b__c
        mcp__a__b__c_0b66f8cc
        mcp____
        mcp__s__longlonglonglonglonglonglonglonglonglonglonglon_32cb050a
        mcp__longlonglonglonglonglonglonglonglonglonglonglonglo_3420baa7
        ");
    }

    #[test]
    fn a_name_does_not_depend_on_the_others() {
        let long = "x".repeat(80);
        let alone = names(&[("s", &long)]);
        let among = names(&[("s", "a"), ("s", &long)]);
        assert!(among.ends_with(&alone));
    }
}
