//! The shapes of keys of well-known services.

/// How a secret of some kind begins, and what follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) prefix: &'static str,
    /// Whether the prefix counts only at the beginning of a word: it is short, or part of words.
    pub(crate) at_word: bool,
    /// Whether the prefix is kept in the output.
    pub(crate) keeps_prefix: bool,
    pub(crate) rest: Rest,
}

/// What follows the prefix of a shape.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rest {
    /// At least `min` bytes of an alphabet; all that follow belong to it.
    Open { alphabet: Alphabet, min: usize },
    /// Exactly 16 capitals and digits, and then no letter or digit.
    AccessKey,
    /// The lines of a private key.
    Pem,
    /// The rest of a JSON Web Token.
    Jwt,
    /// The user of a URL, and the password, which alone is the secret.
    Url,
}

/// The bytes that a token has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// Letters and digits.
    Plain,
    /// Also `_`.
    Word,
    /// Also `-`. The token has to look random: words joined by dashes are ordinary text.
    Dashed,
    /// All bytes of a bearer token, which has to look random.
    Bearer,
}

impl Alphabet {
    fn has(self, byte: u8) -> bool {
        byte.is_ascii_alphanumeric()
            || match self {
                Self::Plain => false,
                Self::Word => byte == b'_',
                Self::Dashed => matches!(byte, b'_' | b'-'),
                Self::Bearer => {
                    matches!(byte, b'_' | b'-' | b'.' | b'~' | b'+' | b'/' | b'=' | b'%')
                }
            }
    }

    fn has_to_look_random(self) -> bool {
        matches!(self, Self::Dashed | Self::Bearer)
    }
}

const fn open(prefix: &'static str, alphabet: Alphabet, min: usize) -> Shape {
    let rest = Rest::Open { alphabet, min };
    Shape { prefix, at_word: false, keeps_prefix: false, rest }
}

const fn at_word(shape: Shape) -> Shape {
    Shape { at_word: true, ..shape }
}

const fn bearer(prefix: &'static str) -> Shape {
    Shape { keeps_prefix: true, ..at_word(open(prefix, Alphabet::Bearer, 20)) }
}

const fn access_key(prefix: &'static str) -> Shape {
    Shape { prefix, at_word: true, keeps_prefix: false, rest: Rest::AccessKey }
}

const fn pem(prefix: &'static str) -> Shape {
    Shape { prefix, at_word: false, keeps_prefix: false, rest: Rest::Pem }
}

const fn jwt(prefix: &'static str) -> Shape {
    Shape { prefix, at_word: true, keeps_prefix: false, rest: Rest::Jwt }
}

const fn url(prefix: &'static str) -> Shape {
    Shape { prefix, at_word: false, keeps_prefix: true, rest: Rest::Url }
}

pub(crate) static SHAPES: &[Shape] = &[
    at_word(open("sk-", Alphabet::Dashed, 20)),
    at_word(open("sk_live_", Alphabet::Plain, 16)),
    at_word(open("sk_test_", Alphabet::Plain, 16)),
    at_word(open("AIza", Alphabet::Dashed, 35)),
    at_word(open("xai-", Alphabet::Plain, 40)),
    // What the tokens of `fabro serve` are made from.
    open("fabro_key_", Alphabet::Dashed, 40),
    open("gsk_", Alphabet::Plain, 40),
    open("hf_", Alphabet::Plain, 30),
    open("npm_", Alphabet::Plain, 30),
    open("ghp_", Alphabet::Plain, 30),
    open("gho_", Alphabet::Plain, 30),
    open("ghu_", Alphabet::Plain, 30),
    open("ghs_", Alphabet::Plain, 30),
    open("ghr_", Alphabet::Plain, 30),
    open("github_pat_", Alphabet::Word, 22),
    open("glpat-", Alphabet::Dashed, 20),
    open("xoxa-", Alphabet::Dashed, 10),
    open("xoxb-", Alphabet::Dashed, 10),
    open("xoxp-", Alphabet::Dashed, 10),
    open("xoxr-", Alphabet::Dashed, 10),
    open("xoxs-", Alphabet::Dashed, 10),
    access_key("AKIA"),
    access_key("ASIA"),
    bearer("Bearer "),
    bearer("bearer "),
    bearer("BEARER "),
    pem("-----BEGIN PRIVATE KEY-----"),
    pem("-----BEGIN ENCRYPTED PRIVATE KEY-----"),
    pem("-----BEGIN RSA PRIVATE KEY-----"),
    pem("-----BEGIN EC PRIVATE KEY-----"),
    pem("-----BEGIN DSA PRIVATE KEY-----"),
    pem("-----BEGIN OPENSSH PRIVATE KEY-----"),
    pem("-----BEGIN PGP PRIVATE KEY BLOCK-----"),
    // `{"` in base64.
    jwt("eyJ"),
    url("://"),
];

/// A prefix that was read, and what has followed so far.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Where the secret begins, if it is one.
    pub(crate) start: usize,
    /// Whether it is certainly one; it may still continue.
    pub(crate) is_secret: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Open { alphabet: Alphabet, min: usize, seen: usize, run: usize, is_random: bool },
    AccessKey { seen: usize },
    Pem(Pem),
    Jwt(Jwt),
    Url(UrlUser),
}

/// What a byte means for a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It belongs to it, as far as known.
    Continues,
    /// It belongs to it and is its last one.
    Last,
    /// It does not belong to it: the candidate ended before.
    Ended,
}

/// This many letters and digits in a row are not a word.
const RANDOM_RUN: usize = 16;

/// After this many bytes more than the minimum, a token that does not look random yet is text.
const DOUBT: usize = 32;

impl Candidate {
    pub(crate) fn new(shape: &Shape, start: usize) -> Self {
        let state = match shape.rest {
            Rest::Open { alphabet, min } => State::Open {
                alphabet,
                min,
                seen: 0,
                run: 0,
                is_random: !alphabet.has_to_look_random(),
            },
            Rest::AccessKey => State::AccessKey { seen: 0 },
            Rest::Pem => State::Pem(Pem::Head { seen: 0, run: 0, dashes: 0, is_first: true }),
            Rest::Jwt => State::Jwt(Jwt::default()),
            Rest::Url => State::Url(UrlUser::default()),
        };
        Self { start, is_secret: false, state }
    }

    /// Its alphabet, where only another byte ends it.
    pub(crate) fn alphabet(&self) -> Option<Alphabet> {
        match self.state {
            State::Open { alphabet, .. } => Some(alphabet),
            _ => None,
        }
    }

    /// Whether a shape that begins inside this candidate is not followed: this one contains it.
    pub(crate) fn contains(&self, shape: &Shape) -> bool {
        matches!((&self.state, shape.rest), (State::Jwt(_), Rest::Jwt))
    }

    /// Reads the next byte.
    pub(crate) fn step(&mut self, byte: u8) -> Step {
        match &mut self.state {
            State::Open { alphabet, min, seen, run, is_random } => {
                if !alphabet.has(byte) {
                    return Step::Ended;
                }
                *seen += 1;
                *run = if byte.is_ascii_alphanumeric() { *run + 1 } else { 0 };
                *is_random |=
                    byte.is_ascii_digit() || byte.is_ascii_uppercase() || *run >= RANDOM_RUN;
                self.is_secret |= *seen >= *min && *is_random;
                let is_text = !self.is_secret && *seen >= *min + DOUBT;
                if is_text { Step::Ended } else { Step::Continues }
            }
            State::AccessKey { seen } => {
                if *seen == 16 {
                    self.is_secret = !byte.is_ascii_alphanumeric() && byte != b'_';
                    return Step::Ended;
                }
                *seen += 1;
                let belongs = byte.is_ascii_uppercase() || byte.is_ascii_digit();
                if belongs { Step::Continues } else { Step::Ended }
            }
            State::Pem(pem) => {
                let (next, step) = pem.step(byte);
                *pem = next;
                self.is_secret |= !matches!(pem, Pem::Head { .. });
                step
            }
            State::Jwt(jwt) => {
                let step = jwt.step(byte);
                self.is_secret |= jwt.is_token();
                step
            }
            State::Url(url) => {
                let step = url.step(byte);
                if step == Step::Last {
                    self.start += url.password;
                    self.is_secret = true;
                    return Step::Ended;
                }
                step
            }
        }
    }

    /// The input ends.
    pub(crate) fn finish(&mut self) {
        self.is_secret |= matches!(self.state, State::AccessKey { seen: 16 });
    }
}

/// The part of a private key that the next byte is in.
#[derive(Clone, Copy, Debug)]
enum Pem {
    /// After the first line, which may only be mentioned in text.
    Head { seen: usize, run: usize, dashes: usize, is_first: bool },
    /// In its data. `escaped` after a backslash, `begins` at the beginning of a line.
    Body { escaped: bool, begins: bool },
    /// In the last line.
    Foot { has_text: bool, dashes: usize },
}

impl Pem {
    /// Data of this length is not prose; directly after the first line less is enough.
    const DATA: usize = 41;
    /// The lines `Proc-Type`, `DEK-Info`, `Version`, `Comment` are shorter together.
    const HEAD: usize = 512;

    fn step(self, byte: u8) -> (Self, Step) {
        let is_data = byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        match self {
            Self::Head { seen, run, dashes, is_first } => {
                let run = if is_data { run + 1 } else { 0 };
                let dashes = if byte == b'-' { dashes + 1 } else { 0 };
                let is_first = is_first && (is_data || matches!(byte, b'\\' | b'\r' | b'\n'));
                let next = if dashes == 5 {
                    Self::Foot { has_text: false, dashes: 0 }
                } else if run >= Self::DATA || is_first && run >= RANDOM_RUN {
                    Self::Body { escaped: false, begins: false }
                } else {
                    Self::Head { seen: seen + 1, run, dashes, is_first }
                };
                let is_text = !byte.is_ascii() || seen >= Self::HEAD;
                (next, if is_text { Step::Ended } else { Step::Continues })
            }
            Self::Body { escaped, begins } => match byte {
                b'-' => (Self::Foot { has_text: false, dashes: 1 }, Step::Continues),
                b'\\' => (Self::Body { escaped: true, begins }, Step::Continues),
                b'\n' | b'\r' => (Self::Body { escaped: false, begins: true }, Step::Continues),
                b' ' | b'\t' if begins => (self, Step::Continues),
                _ if is_data => {
                    let begins = escaped && matches!(byte, b'n' | b'r');
                    (Self::Body { escaped: false, begins }, Step::Continues)
                }
                _ => (self, Step::Ended),
            },
            Self::Foot { has_text, dashes } => match byte {
                b'-' if has_text && dashes == 4 => (self, Step::Last),
                b'-' => (Self::Foot { has_text, dashes: dashes + 1 }, Step::Continues),
                b'A'..=b'Z' | b' ' => (Self::Foot { has_text: true, dashes: 0 }, Step::Continues),
                _ => (self, Step::Ended),
            },
        }
    }
}

/// The parts of a JSON Web Token, signed (three of them) or encrypted (five).
#[derive(Clone, Copy, Debug, Default)]
struct Jwt {
    /// The parts before the current one.
    parts: usize,
    /// The length of the current part.
    length: usize,
    /// The length of all of it.
    total: usize,
    /// The second part is no JSON, so the token is encrypted.
    is_encrypted: bool,
}

impl Jwt {
    /// Parts are longer; only the key of an encrypted token may be empty.
    const PART: usize = 10;
    /// A token that is longer before its third part is text.
    const LONGEST: usize = 16 * 1024;

    fn is_token(self) -> bool {
        self.parts >= 2 && self.length >= Self::PART
    }

    fn step(&mut self, byte: u8) -> Step {
        self.total += 1;
        if self.parts < 2 && self.total > Self::LONGEST {
            return Step::Ended;
        }
        if byte == b'.' {
            let may_be_empty = self.parts == 1;
            let parts = if self.is_encrypted { 5 } else { 3 };
            let is_whole = self.length >= Self::PART || may_be_empty && self.length == 0;
            if !is_whole || self.parts + 1 == parts {
                return Step::Ended;
            }
            self.is_encrypted |= may_be_empty && self.length == 0;
            self.parts += 1;
            self.length = 0;
            return Step::Continues;
        }
        if !Alphabet::Dashed.has(byte) {
            return Step::Ended;
        }
        // `{` in base64 is `e` and one of a few letters, `y` before a quote.
        self.is_encrypted |= self.parts == 1 && self.length == 0 && byte != b'e';
        self.length += 1;
        Step::Continues
    }
}

/// The user and the password of a URL: `user:password@`.
#[derive(Clone, Debug, Default)]
struct UrlUser {
    seen: usize,
    /// How many bytes the password begins after the prefix; 0 before it begins.
    password: usize,
    /// The beginning of the password.
    word: Vec<u8>,
}

impl UrlUser {
    /// Users and passwords together are shorter.
    const LONGEST: usize = 1024;
    /// Common words are shorter.
    const WORD: usize = 16;

    /// [`Step::Last`] for the byte after the password.
    fn step(&mut self, byte: u8) -> Step {
        self.seen += 1;
        let is_in_password = self.password > 0;
        match byte {
            b':' if !is_in_password => self.password = self.seen,
            b'@' if is_in_password && self.is_secret() => return Step::Last,
            b'@' | b'/' | b'?' | b'#' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b'|' => {
                return Step::Ended;
            }
            byte if byte.is_ascii_whitespace() || byte.is_ascii_control() => return Step::Ended,
            // Not a password, but where one is to be put.
            b'$' | b'{' | b'[' | b'*' | b'(' if self.word.is_empty() => return Step::Ended,
            _ if is_in_password && self.word.len() < Self::WORD => self.word.push(byte),
            _ => {}
        }
        if self.seen >= Self::LONGEST { Step::Ended } else { Step::Continues }
    }

    fn is_secret(&self) -> bool {
        let plain = |word: &&str| self.word.eq_ignore_ascii_case(word.as_bytes());
        !self.word.is_empty() && !PLAIN_PASSWORDS.iter().any(plain)
    }
}

/// Passwords in the URLs of examples and of services for development.
#[rustfmt::skip]
const PLAIN_PASSWORDS: &[&str] = &[
    "admin", "changeme", "dev", "example", "guest", "mysql", "pass", "passwd", "password", "postgres",
    "pw", "pwd", "redis", "root", "secret", "test", "token", "user", "xxx", "xxxx",
];

/// The password of a URL, where it is a secret.
pub(crate) fn url_password(url: &str) -> Option<&str> {
    let rest = &url[url.find("://")? + "://".len()..];
    let mut user = UrlUser::default();
    for (at, byte) in rest.bytes().enumerate() {
        match user.step(byte) {
            Step::Continues => {}
            Step::Last => return rest.get(user.password..at),
            Step::Ended => return None,
        }
    }
    None
}

/// How many bytes before a prefix determine whether a word begins there.
pub(crate) const CONTEXT: usize = 16;

/// Whether a word begins after these bytes (the last [`CONTEXT`] of them are enough). They may end with
/// an escape sequence, and so with a letter or a digit.
pub(crate) fn begins_word(before: &[u8]) -> bool {
    let is_hex = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_hexdigit);
    match before {
        [] | [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        [.., last] if !last.is_ascii_alphanumeric() => true,
        [.., b'%', a, b] if is_hex(&[*a, *b]) => true,
        [.., b'\\', b'u', a, b, c, d] if is_hex(&[*a, *b, *c, *d]) => true,
        // The end of an escape sequence that sets colours.
        [rest @ .., b'm'] => {
            let mut rest = rest.iter().rev().take(CONTEXT);
            rest.find(|byte| !byte.is_ascii_digit() && **byte != b';') == Some(&b'[')
        }
        _ => false,
    }
}
