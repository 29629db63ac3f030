use fabro_tokens::{CharsPerFour, O200k};
use insta::assert_snapshot;
use proptest::prelude::*;

use super::*;

fn said(round: u64) -> Turn {
    let kind = if round.is_multiple_of(3) { Speaker::Human } else { Speaker::Llm };
    let text = format!("This is answer {round}. It goes on\nin a second line.");
    Turn::new(format!("n{round}"), kind, text)
}

fn memory(turns: u64) -> Memory {
    Memory::fold((1..=turns).map(said))
}

#[test]
fn the_last_turns_are_kept_and_others_become_lines() {
    let memory = memory(15);
    assert_eq!(memory.round(), 15);
    assert_eq!(memory.recent_turns().len(), RECENT_TURNS);
    assert_eq!(memory.recent_turns()[0], Turn { round: 4, ..said(4) });
    assert_eq!(memory.partner(), Some("This is answer 15. It goes on\nin a second line."));
    assert_snapshot!(memory.summary(), @r"
    - [1] n1 (llm): This is answer 1.
    - [2] n2 (llm): This is answer 2.
    - [3] n3 (human): This is answer 3.
    ");
}

#[test]
fn pushing_is_folding() {
    let mut pushed = memory(20);
    pushed.push(said(21));
    assert_eq!(pushed, memory(21));
}

#[test]
fn the_summary_is_bounded_and_says_so() {
    let summary = memory(120).summary();
    assert_eq!(summary.lines().count(), 101);
    assert!(summary.starts_with("(8 earlier turns left out)\n- [9] n9 (human): "), "{summary}");
    assert!(summary.ends_with("\n- [108] n108 (human): This is answer 108."), "{summary}");
}

#[test]
fn a_line_of_the_summary_is_a_sentence() {
    #[track_caller]
    fn check(text: &str, expect: &str) {
        let turns = std::iter::repeat_n(Turn::new("n", Speaker::Llm, text), RECENT_TURNS + 1);
        assert_eq!(Memory::fold(turns).summary(), format!("- [1] n (llm): {expect}"));
    }
    check("Done! And more.", "Done!");
    check("Version 1.2 is out. Yes.", "Version 1.2 is out.");
    check("\n\n## The plan\n\n1. Do it.", "The plan");
    check("```\ncode. More\n```", "code.");
    check("完成了。还有更多。", "完成了。");
    check("a\tb\u{1b}[0m  c", "a b\u{fffd}[0m c");
    check("", "");
    check(&"word ".repeat(100), &format!("{}…", "word ".repeat(32).trim_end()));
    check(&"ü".repeat(10_000), &format!("{}…", "ü".repeat(159)));
}

#[test]
fn a_given_summary_takes_its_place() {
    let memory = memory(15).with_summary(" They agreed.\nOn a plan.\n");
    assert_eq!(memory.summary(), "They agreed.\nOn a plan.");
    assert!(
        memory.block(&CharsPerFour, 2_000).contains("in short:\nThey agreed.\nOn a plan.\n\n[")
    );
    assert_eq!(memory.with_summary(" ").summary().lines().count(), 3);
}

#[test]
fn a_query_is_the_partner_or_the_prompt_and_a_line_of_the_summary() {
    assert_eq!(Memory::default().query("the prompt"), "the prompt");
    assert_eq!(memory(1).query("the prompt"), said(1).text);
    let expect = format!("{}\n- [3] n3 (human): This is answer 3.", said(15).text);
    assert_eq!(memory(15).query("the prompt"), expect);
}

#[test]
fn the_block_tells_summary_and_turns() {
    assert_eq!(Memory::default().block(&CharsPerFour, 2_000), "");
    assert_snapshot!(memory(14).block(&CharsPerFour, 2_000), @r"
    ## Conversation so far (14 turns)

    Earlier turns, in short:
    - [1] n1 (llm): This is answer 1.
    - [2] n2 (llm): This is answer 2.

    [3] n3 (human): This is answer 3. It goes on
    in a second line.

    [4] n4 (llm): This is answer 4. It goes on
    in a second line.

    [5] n5 (llm): This is answer 5. It goes on
    in a second line.

    [6] n6 (human): This is answer 6. It goes on
    in a second line.

    [7] n7 (llm): This is answer 7. It goes on
    in a second line.

    [8] n8 (llm): This is answer 8. It goes on
    in a second line.

    [9] n9 (human): This is answer 9. It goes on
    in a second line.

    [10] n10 (llm): This is answer 10. It goes on
    in a second line.

    [11] n11 (llm): This is answer 11. It goes on
    in a second line.

    [12] n12 (human): This is answer 12. It goes on
    in a second line.

    [13] n13 (llm): This is answer 13. It goes on
    in a second line.

    [14] n14 (llm): This is answer 14. It goes on
    in a second line.
    ");
}

#[test]
fn the_oldest_goes_first_when_there_is_no_room() {
    assert_snapshot!(memory(14).block(&CharsPerFour, 80), @r"
    ## Conversation so far (14 turns)

    Earlier turns, in short:
    (10 earlier lines left out)
    - [11] n11 (llm): This is answer 11.
    - [12] n12 (human): This is answer 12.
    - [13] n13 (llm): This is answer 13.

    [14] n14 (llm): This is answer 14. It goes on
    in a second line.
    ");
    assert_snapshot!(memory(30).block(&CharsPerFour, 60), @r"
    ## Conversation so far (30 turns)

    Earlier turns, in short:
    (28 earlier lines left out)
    - [29] n29 (llm): This is answer 29.

    [30] n30 (human): This is answer 30. It goes on
    in a second line.
    ");
    assert_snapshot!(memory(30).block(&CharsPerFour, 20), @r"
    [30] n30 (human): This is answer 30. It goes on
    in a second line.
    ");
    assert_eq!(memory(30).block(&CharsPerFour, 3), "");
}

#[test]
fn a_long_turn_leaves_room_for_the_others() {
    let mut memory = memory(3);
    memory.push(Turn::new(
        "long",
        Speaker::Llm,
        format!("```rust\n{}```", "let a = 1;\n".repeat(2_000)),
    ));
    let block = memory.block(&CharsPerFour, 2_000);
    assert!(block.contains("[1] n1 (llm): This is answer 1."));
    assert!(block.ends_with("let a = 1;\n```\n(… 15316 characters left out)"), "{block}");
}

#[test]
fn the_summary_comes_before_long_turns() {
    // Twenty answers of 200 words.
    let answer =
        |n: usize| format!("Answer {n} begins so. {}", "and it has many words ".repeat(40));
    let turns = (1..=20).map(|n| Turn::new(format!("n{n}"), Speaker::Llm, answer(n)));
    let block = Memory::fold(turns).block(&O200k, MEMORY_TOKENS);
    for n in 1..=20 {
        assert!(block.contains(&format!("n{n} (llm): Answer {n} begins so.")), "{n}: {block}");
    }
    assert_eq!(block.matches(" characters left out)").count(), 12, "{block}");
    assert!(O200k.count(&block) > MEMORY_TOKENS * 8 / 10);
}

#[test]
fn old_turns_become_lines_before_the_summary_is_cut() {
    let text = |n: u64| {
        format!("Sentence {n} of {}. Then {}", "some words ".repeat(9), "more ".repeat(90))
    };
    let turns = (1..=150).map(|n| Turn::new("node", Speaker::Llm, text(n)));
    let block = Memory::fold(turns).block(&O200k, MEMORY_TOKENS);
    assert_snapshot!(block.lines().take(4).collect::<Vec<_>>().join("\n"), @r"
    ## Conversation so far (150 turns)

    Earlier turns, in short:
    (55 earlier lines left out)
    ");
    let shown = block.lines().filter(|line| line.starts_with("- [")).count();
    assert!(block.contains("\n- [149] node (llm): Sentence 149 of some"), "{block}");
    assert!(block.contains("\n\n[150] node (llm): Sentence 150 of some") && shown > 40, "{block}");
}

#[test]
fn blocks_are_in_order_and_absent_when_blank() {
    let all = Blocks {
        preamble: "PREAMBLE",
        memory: "MEMORY\n",
        rag: "RAG",
        tool_instructions: "TOOLS",
        partner: "hello\n",
        prompt: "PROMPT\n",
    };
    let message = assemble(&all, &CharsPerFour);
    assert_eq!(
        message,
        "PREAMBLE\n\nMEMORY\n\nRAG\n\nTOOLS\n\nPartner just said: hello\n\nPROMPT\n"
    );
    let two = Blocks { preamble: " a\n", prompt: "\nb ", partner: " \n", ..Blocks::default() };
    assert_eq!(assemble(&two, &CharsPerFour), " a\n\n\n\nb ");
    let one = Blocks { prompt: " b\n", ..Blocks::default() };
    assert_eq!(assemble(&one, &CharsPerFour), " b\n");
}

#[test]
fn blocks_are_capped() {
    let long = "word ".repeat(1_000_000);
    let part = |blocks: Blocks<'_>| {
        let message = assemble(&blocks, &O200k);
        let block = message.strip_suffix("\n\nend").unwrap();
        assert!(block.ends_with(" characters left out)"), "{}", &block[block.len() - 50..]);
        O200k.count(block)
    };
    let end = Blocks { prompt: "end", ..Blocks::default() };
    for (blocks, most) in [
        (Blocks { memory: &long, ..end }, MEMORY_TOKENS),
        (Blocks { rag: &long, ..end }, RAG_TOKENS),
        (Blocks { tool_instructions: &long, ..end }, TOOL_INSTRUCTION_TOKENS),
    ] {
        let tokens = part(blocks);
        assert!(tokens <= most && tokens > most * 3 / 4, "{tokens} of {most}");
    }
}

#[test]
fn tools_get_the_same() {
    let context = ToolContext::from(&memory(13));
    let json = serde_json::to_value(&context).unwrap();
    assert_eq!(json["workflow_summary"], "- [1] n1 (llm): This is answer 1.");
    assert_eq!(json["recent_turns"].as_array().unwrap().len(), 12);
    assert_eq!(json["recent_turns"][1], format!("n3 (human): {}", said(3).text));
    assert_eq!(json["round"], 13);
    assert_eq!(serde_json::from_value::<ToolContext>(json).unwrap(), context);
}

#[test]
fn turns_are_written_as_json() {
    let turn = Turn { round: 2, ..Turn::new("n", Speaker::Human, "yes") };
    let json = serde_json::to_string(&turn).unwrap();
    assert_eq!(json, r#"{"node":"n","kind":"human","text":"yes","round":2}"#);
    assert_eq!(serde_json::from_str::<Turn>(&json).unwrap(), turn);
}

/// A counter that is far off.
struct Odd(usize);

impl CountTokens for Odd {
    fn count(&self, text: &str) -> usize {
        text.len() * self.0
    }
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let texts = prop::sample::select(vec!["a ", "日本", "```\n", "\n", "x. ", "\u{1b}", "🦀", " "]);
    let text = (texts, 0_usize..500).prop_map(|(unit, times)| unit.repeat(times));
    let turn = ("\\PC{0,300}", text).prop_map(|(node, text)| Turn::new(node, Speaker::Llm, text));
    prop::collection::vec(turn, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_ceiling_holds(turns in turns(), max in 0_usize..3_000, odd in 0_usize..9) {
        let memory = Memory::fold(turns);
        for counter in [&CharsPerFour as &dyn CountTokens, &O200k, &Odd(odd)] {
            let block = memory.block(counter, max);
            prop_assert!(block.is_empty() || counter.count(&block) <= max);
        }
    }

    #[test]
    fn blocks_are_never_over(text in "(\\PC|\n){0,50}", times in 1_usize..100) {
        let text = text.repeat(times);
        let block = cut::cut(&text, 100, &O200k);
        prop_assert!(O200k.count(&block) <= 100);
    }
}

#[test]
fn the_last_turns_are_all_it_takes() {
    let turns = |range: std::ops::Range<usize>| {
        range.map(|i| Turn::new(format!("n{i}"), Speaker::Llm, format!("said {i}")))
    };
    for total in [REMEMBERED_TURNS, REMEMBERED_TURNS + 1, 500] {
        let first = total - REMEMBERED_TURNS;
        let mut short = Memory::after(first as u64);
        turns(first..total).for_each(|turn| short.push(turn));
        assert_eq!(short, Memory::fold(turns(0..total)), "{total}");
    }
}
