#!/usr/bin/env python3
"""Measures Fabro beside LangGraph, DBOS and the Temporal SDK, and prints tables in Markdown: measure.py target/release/fabro [ROUNDS]

The others are installed from PyPI into environments of their own, below a folder for temporary files. The programs take turns, and medians
are printed: the time on the clock, and the time that processors worked (of all processes), which depends less on what else the machine does.
"""

import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
STEPS = 1000
PACKAGES = {
    "LangGraph": ["langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2"],
    "DBOS": ["dbos==3.4.0"],
    "Temporal SDK": ["temporalio==1.35.0"],
}
BROKEN = "def total(prices, percent_off):\n    return sum(prices) - percent_off\n"
FIXED = "def total(prices, percent_off):\n    return sum(prices) * (100 - percent_off) / 100\n"
TEST = """import unittest
from price import total

class Total(unittest.TestCase):
    def test_discount(self):
        self.assertEqual(total([50, 150], 10), 180)
"""
MODEL = """{"fix": [
  {"text": "First I read it.", "tool_calls": [{"name": "read_file", "arguments": {"file_path": "price.py"}}]},
  {"text": "A percentage.", "tool_calls": [{"name": "edit_file", "arguments": {"file_path": "price.py",
    "old_string": "sum(prices) - percent_off", "new_string": "sum(prices) * (100 - percent_off) / 100"}}]},
  {"text": "Fixed."}]}
"""


def install(base):
    """The Python of each environment, and what it took."""
    pythons, rows = {}, []
    for name, packages in PACKAGES.items():
        folder = base / name.split()[0].lower()
        venv.create(folder, with_pip=True)
        python = folder / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        listed = subprocess.run([python, "-m", "pip", "list", "--format=freeze"], check=True, capture_output=True, text=True)
        count = sum(line.split("==")[0] not in ("pip", "setuptools") for line in listed.stdout.split())
        site = next(folder.glob("lib/python*/site-packages"))
        own = [entry for entry in site.iterdir() if not entry.name.startswith(("pip", "setuptools", "_distutils", "pkg_resources"))]
        files = [file for entry in own for file in ([entry] if entry.is_file() else entry.rglob("*")) if file.is_file()]
        size = sum(file.stat().st_size for file in files)
        pythons[name] = str(python)
        rows.append([name, ", ".join(packages), f"{size / 1e6:.0f} MB in {count} packages"])
    return pythons, rows


def timed(command, folder):
    """Seconds on the clock, and of processors, of a command that must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    clock = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def line(count, script):
    """A Fabro workflow of `count` commands in a line."""
    names = [f"s{number}" for number in range(1, count + 1)]
    nodes = "\n".join(f'{name} [shape=parallelogram, script="{script}"]' for name in names)
    return f"digraph Line {{\n{nodes}\n{' -> '.join(['start', *names, 'exit'])}\n}}\n"


def commands(program, pythons, base):
    """For each engine, what runs a line of some steps in a folder without earlier runs."""
    for count in (1, STEPS):
        (base / f"line{count}.fabro").write_text(line(count, "true"))
    python = lambda name, script: lambda count: [pythons[name], HERE / script, str(count), "runs.db"]
    return {
        "Fabro": lambda count: [program, "run", "--quiet", base / f"line{count}.fabro"],
        "LangGraph": python("LangGraph", "line_langgraph.py"),
        "DBOS": python("DBOS", "line_dbos.py"),
        "the processes alone": lambda count: ["bash", "-c", f"for n in $(seq {count}); do bash -c true; done"],
    }


def lines(base, runs, count, rounds):
    """Rows of an engine, its clock time and its processor time."""
    times = {name: [] for name in runs}
    for number in range(rounds):
        for name, command in runs.items():
            folder = base / f"run-{number}"
            folder.mkdir()
            times[name].append(timed(command(count), folder))
            shutil.rmtree(folder)
    middle = lambda values: f"{statistics.median(values):.2f} s"
    return [[name, *map(middle, zip(*values))] for name, values in times.items()]


def crash(base, program, pythons):
    """How many steps of 20 ran twice when the process ended within step 7 and was started again."""
    rows = []
    script = "echo {n} >> steps.log; test {n} -ne 7 || test -e once || {{ touch once; kill -9 $PPID; }}"
    names = range(1, 21)
    nodes = "\n".join(f's{n} [shape=parallelogram, script="{script.format(n=n)}"]' for n in names)
    (base / "crash.fabro").write_text(
        f"digraph Crash {{\n{nodes}\nstart -> {' -> '.join(f's{n}' for n in names)} -> exit\n}}\n"
    )
    runs = {
        "Fabro": ([program, "run", base / "crash.fabro"], [program, "resume", "latest"]),
        "LangGraph": ([pythons["LangGraph"], HERE / "line_langgraph.py", "20", "runs.db", "7"],
                      [pythons["LangGraph"], HERE / "line_langgraph.py", "20", "runs.db"]),
        "DBOS": ([pythons["DBOS"], HERE / "line_dbos.py", "20", "runs.db", "7"],
                 [pythons["DBOS"], HERE / "line_dbos.py", "20", "runs.db"]),
    }
    for name, (first, second) in runs.items():
        folder = base / "crash"
        folder.mkdir()
        killed = subprocess.run(first, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True)
        timed(second, folder)
        steps = (folder / "steps.log").read_text().split()
        rows.append([name, str(killed.returncode), str(len(set(steps))), str(len(steps) - len(set(steps)))])
        shutil.rmtree(folder)
    return rows


def fix(base, program, pythons):
    """The same workflow in each: it must end, and is counted in lines of code."""
    runs = {
        "Fabro": ("fix.fabro", [[program, "run", HERE / "fix.fabro", "--model-script", "model.json"],
                                [program, "answer", "latest", "K"], [program, "resume", "latest"]]),
        "LangGraph": ("fix_langgraph.py", [[pythons["LangGraph"], HERE / "fix_langgraph.py", "runs.db", *answer]
                                           for answer in ([], ["Keep"])]),
        "DBOS": ("fix_dbos.py", [[pythons["DBOS"], HERE / "fix_dbos.py", "runs.db", *answer]
                                 for answer in ([], ["Keep"])]),
    }
    rows = []
    for name, (file, steps) in runs.items():
        folder = base / "fix"
        folder.mkdir()
        texts = {"price.py": BROKEN, "fixed.py": FIXED, "test_price.py": TEST, "model.json": MODEL}
        for path, text in texts.items():
            (folder / path).write_text(text)
        for command in steps:
            done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            # Fabro ends with 3 when a run waits.
            if done.returncode not in (0, 3):
                sys.exit(f"{command}: {done.stdout}{done.stderr}")
        assert (folder / "price.py").read_text() == FIXED, name
        code = [line for line in (HERE / file).read_text().split('"""')[-1].splitlines() if line.strip() and not line.strip().startswith("#")]
        rows.append([name, file, str(len(code))])
        shutil.rmtree(folder)
    return rows


def table(head, rows):
    for row in [head, ["---"] * len(head), *rows]:
        print(f"| {' | '.join(row)} |")
    print(flush=True)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program = str(Path(sys.argv[1]).resolve())
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        pythons, installed = install(base)
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        size = f"{Path(program).stat().st_size / 1e6:.0f} MB in one file"
        print(f"{time.strftime('%Y-%m-%d')}, {platform.system()} {platform.machine()}, Python {platform.python_version()}\n")
        table(["", "installed", "size"], [["Fabro", version, size], *installed])
        runs = commands(program, pythons, base)
        head = ["", "time", "time of processors"]
        print("One step, the whole process:\n")
        table(head, lines(base, runs, 1, rounds))
        print(f"{STEPS} steps:\n")
        table(head, lines(base, runs, STEPS, max(1, rounds // 2)))
        print("Killed within step 7 of 20, and started again:\n")
        table(["", "exit code of the first", "different steps that ran", "ran twice"], crash(base, program, pythons))
        print("Fix a program until its tests pass, then ask a person:\n")
        table(["", "file", "lines"], fix(base, program, pythons))


if __name__ == "__main__":
    main()
