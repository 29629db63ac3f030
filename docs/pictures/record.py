#!/usr/bin/env python3
"""Records a session of the tutorial in a real terminal, as an animated SVG: record.py target/release/fabro

Needs pyte from PyPI (`pip install pyte`), which is the terminal. The commands are typed into a shell; what is seen is what they print.
"""

import fcntl
import html
import os
import pty
import re
import select
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

import pyte

HERE = Path(__file__).resolve().parent
COLUMNS, ROWS = 104, 27
# Pixels of a character, and around the screen.
WIDTH, HEIGHT, EDGE = 8.4, 19, 14
# A pause is shown for at most this long, in seconds; the last screen stays for `END`.
PAUSE, END = 1.6, 5
# What is typed, what the screen has when it is done, and how long the result is to be read.
SESSION = [
    ("fabro run fix.fabro --model-script model.json", "Killed", 1.6),
    ("fabro ps", "interrupted", 1.6),
    ("fabro resume latest", "Keep this fix?", 2),
    ("k", "succeeded in", 2),
    ("fabro explain latest test@1", "saw", 2.5),
]
COLORS = {
    "black": "#6e7681", "red": "#ff7b72", "green": "#7ee787", "brown": "#e3b341", "blue": "#79c0ff",
    "magenta": "#d2a8ff", "cyan": "#76e3ea", "white": "#e6edf3", "default": "#e6edf3",
}


def files_of_the_tutorial(folder):
    """Writes the files that docs/tutorial.md shows."""
    text = (HERE.parent / "tutorial.md").read_text()
    for name, content in re.findall(r"^```\w+ file=(\S+)\n(.*?)^```", text, re.M | re.S):
        (folder / name).write_text(content)


class Recording:
    """A shell in a terminal, and its screens with their times."""

    def __init__(self, program, folder):
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self.stream = pyte.ByteStream(self.screen)
        self.frames = []
        self.started = time.monotonic()
        self.shell, self.terminal = pty.fork()
        if self.shell == 0:
            os.chdir(folder)
            environment = {
                "HOME": str(folder), "HISTFILE": "/dev/null", "TERM": "xterm-256color", "PS1": "\\[\\e[J\\e[36m\\]$\\[\\e[0m\\] ", "LANG": "C.UTF-8",
                "PATH": f"{Path(program).parent}:{os.environ['PATH']}",
            }
            os.execvpe("bash", ["bash", "--norc", "--noprofile"], environment)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def read(self, seconds):
        """What comes within some time becomes frames."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.terminal], [], [], left)[0]:
                return
            data = os.read(self.terminal, 65536)
            self.stream.feed(data)
            # Programs ask where the cursor is.
            if b"\x1b[6n" in data:
                cursor = self.screen.cursor
                os.write(self.terminal, f"\x1b[{cursor.y + 1};{cursor.x + 1}R".encode())
            self.frames.append((time.monotonic() - self.started, self.lines()))

    def lines(self):
        """The lines of the screen, as stretches of characters that look the same."""
        lines = []
        for row in range(ROWS):
            parts = []
            for column in range(COLUMNS):
                char = self.screen.buffer[row][column]
                style = (char.fg, char.bold, char.reverse)
                if (row, column) == (self.screen.cursor.y, self.screen.cursor.x) and not self.screen.cursor.hidden:
                    style = ("default", False, True)
                if parts and parts[-1][1] == style:
                    parts[-1][2] += char.data
                else:
                    parts.append([column, style, char.data])
            while parts and not parts[-1][2].strip() and not parts[-1][1][2]:
                parts.pop()
            lines.append(tuple((column, style, text) for column, style, text in parts))
        return tuple(lines)

    def until(self, text):
        deadline = time.monotonic() + 120
        while not any(text in "".join(part[2] for part in line) for line in self.lines()):
            if time.monotonic() > deadline:
                sys.exit("\n".join(self.screen.display) + f"\n\n{text!r} did not appear")
            self.read(0.1)

    def type(self, text):
        for char in text:
            os.write(self.terminal, char.encode())
            self.read(0.045)
        self.read(0.5)
        os.write(self.terminal, b"\r")


def span(column, style, text):
    color, bold, reverse = style
    color = COLORS.get(color, f"#{color}" if re.fullmatch("[0-9a-f]{6}", color) else COLORS["default"])
    x = f"{column * WIDTH:.1f}"
    box = ""
    if reverse:
        box = f'<rect x="{x}" y="-14" width="{len(text) * WIDTH:.1f}" height="{HEIGHT}" fill="{color}"/>'
        color = "#0d1117"
    if not text.strip():
        return box
    weight = ' font-weight="700"' if bold else ""
    # The length is given, so that another font does not move what follows.
    text = text.rstrip()
    length = f'{len(text) * WIDTH:.1f}'
    return box + f'<text x="{x}" fill="{color}"{weight} textLength="{length}" xml:space="preserve">{html.escape(text)}</text>'


def svg(frames):
    """One group for each screen, shown in turn; equal lines are there once."""
    shown, clock = [], 0.0
    for (at, lines), following in zip(frames, [*frames[1:], None]):
        length = min(following[0] - at, PAUSE) if following else END
        if shown and (shown[-1][1] < 0.06 or shown[-1][0] == lines):
            shown[-1] = [lines, shown[-1][1] + length]
        else:
            shown.append([lines, length])
    total = sum(length for _, length in shown)
    ids, groups = {}, []
    for number, (lines, length) in enumerate(shown):
        uses = []
        for row, line in enumerate(lines):
            if line:
                name = ids.setdefault(line, f"l{len(ids)}")
                uses.append(f'<use href="#{name}" y="{EDGE + 14 + row * HEIGHT}"/>')
        begin, end = clock / total, (clock + length) / total
        clock += length
        times = f"0;{begin:.5f};{end:.5f};1" if number else f"0;{end:.5f};1"
        values = "0;1;0;0" if number else "1;0;0"
        if number == len(shown) - 1:
            times, values = f"0;{begin:.5f};1", "0;1;1"
        groups.append(
            f'<g opacity="{int(number == len(shown) - 1)}"><animate attributeName="opacity" calcMode="discrete" repeatCount="indefinite" '
            f'dur="{total:.2f}s" keyTimes="{times}" values="{values}"/>{"".join(uses)}</g>'
        )
    defined = "".join(f'<g id="{name}">{"".join(span(*part) for part in line)}</g>' for line, name in ids.items())
    width, height = COLUMNS * WIDTH + 2 * EDGE, ROWS * HEIGHT + 2 * EDGE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-labelledby="title">\n'
        "<title id=\"title\">A terminal: a run is killed in the middle, resumed, answered, and explained</title>\n"
        '<style>text { font: 14px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace }</style>\n'
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n<defs>{defined}</defs>\n'
        f'<g transform="translate({EDGE} 0)">{"".join(groups)}</g>\n</svg>\n'
    )


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    program = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files_of_the_tutorial(folder)
        recording = Recording(program, folder)
        recording.until("$")
        for text, expected, seconds in SESSION:
            recording.type(text)
            recording.until(expected)
            recording.read(seconds)
        os.close(recording.terminal)
        os.waitpid(recording.shell, 0)
    (HERE / "session.svg").write_text(svg(recording.frames))


if __name__ == "__main__":
    main()
