use insta::assert_snapshot;

use super::*;

fn page(html: &str) -> Reading {
    read(html, &Url::parse("https://example.org/docs/a.html").unwrap())
}

#[track_caller]
fn check(html: &str, expect: &str) {
    assert_eq!(page(html).text, expect, "{html}");
}

#[test]
fn a_page_reads_from_top_to_bottom() {
    let read = page(
        "<!doctype html><html><head><title>The\n  docs &amp; more</title><meta charset=utf-8>\
         <style>p { color: red }</style><script>if (a < b) { '</p>' }</script></head><body>\
         <nav><ul><li><a href='/'>Home</a><li><a href='b.html#x'>Next <b>page</b></a></ul></nav>\
         <main><h1>A  heading</h1>\n<p>First&nbsp;line<br>second line.\n   Same line.</p>\
         <ol><li>one<ul><li>inner</ul><li>two</ol>\
         <pre class=x>\nfn main() {\n    1 &lt; 2;\n}\n</pre>\
         <table><tr><th>Name<th>Size</tr><tr><td>a</td><td>1</td></tr></table>\
         <hr><blockquote>Quoted <img src=x alt='a cat'></blockquote><div>x</div><div>y</div>\
         <noscript>no</noscript><svg><text>drawn</text></svg><footer>The end</footer>",
    );
    assert_eq!(read.title, "The docs & more");
    assert!(!read.cut);
    assert_snapshot!(read.text, @r"
    - [Home](https://example.org/)
    - [Next page](https://example.org/docs/b.html#x)

    # A heading

    First line
    second line. Same line.

    1. one
      - inner
    2. two

    ```
    fn main() {
        1 < 2;
    }
    ```

    Name | Size
    a | 1

    ---

    Quoted [image: a cat]

    x
    y

    The end
    ");
}

#[test]
fn links_are_whole_and_lead_elsewhere() {
    check("<a href=../x?y=1&amp;z=2>x</a>", "[x](https://example.org/x?y=1&z=2)");
    check("see <a href='//other.net'> it </a>.", "see [it](https://other.net/) .");
    check("<a href='#here'>here</a> <a href='javascript:x()'>run</a>", "here run");
    check("<a href='mailto:a@b'>mail</a> <a name=n>name</a> <a href=''>none</a>", "mail name none");
    check("<a href='/icon'><img src=i></a>x", "x");
    check(
        "<a href='/card'><h2>Card</h2><p>text</p></a>",
        "## Card\n\ntext (https://example.org/card)",
    );
    check(
        "<a href=1>one <a href=2>two</a>",
        "[one](https://example.org/docs/1) [two](https://example.org/docs/2)",
    );
    check("<a href=http://x.org/>http://x.org/</a>", "http://x.org/");
    check(
        "<base href='/other/'><base href='/not/'><a href=b>b</a>",
        "[b](https://example.org/other/b)",
    );
    check(&format!("<a href='/{}'>long</a>", "x".repeat(600)), "long");
}

#[test]
fn broken_pages_are_read_to_their_end() {
    check("", "");
    check("just text", "just text");
    check("a < b && c > d", "a < b && c > d");
    check("<p>one<p>two</div></p></ul></pre></a></li>three", "one\n\ntwo\n\nthree");
    check("a<svg><path>b<p>c", "a\n\nc");
    check("a<svg/>b<svg><svg></svg>x</svg>c", "abc");
    check("a<script>b", "a");
    check("a<template><template></template>b</template>c", "ac");
    check("a<!-- b --><![CDATA[c]]>d", "ad");
    check("<li>one</li><li></li><p>two", "- one\n\ntwo");
    check("<h2></h2>text", "text");
    check("<pre>a\n\n  b", "```\na\n\n  b\n```");
    check("<pre><div>a</div><div>b</div></pre>", "```\na\nb\n```");
    check("<textarea>&lt;a</textarea> <button>Go</button>", "<a\nGo");
    check("&#0;&bogus;&#x1F600;", "\u{fffd}&bogus;😀");
    assert_eq!(page(&format!("<title>{}", "ä".repeat(900))).title.chars().count(), 300);
}

/// A long page of anything takes time in proportion, and no stack.
#[test]
fn deep_and_repeated_tags_cost_nothing() {
    for piece in [
        "<div>",
        "<ul><li>x",
        "<b a=1>",
        "<a href=x>y",
        "<a href=x>",
        "<table><tr><td>",
        "<svg>",
        "<h1>",
        "<pre>\n",
        "<template>",
        "</p>",
        "<p>x</p>",
        "<!--",
        "<![CDATA[",
        "&amp",
        "<a b ",
        "<a b='",
        "</",
        "<title>",
        "<base href=y/>",
        "<br>",
        "<script></scrip",
        "<textarea></t",
        "<ol><li>",
        "<select><option>",
        "<font><p>",
    ] {
        let read = page(&piece.repeat(100_000 / piece.len()));
        assert!(read.text.len() <= 5 << 20, "{piece}");
    }
    let long = format!("<base href='https://example.org/{}/'>", "x".repeat(450));
    let read = page(&(long + &"<a href=x>y</a> ".repeat(20_000)));
    assert!(read.cut && read.text.len() < 5 << 20);
}
