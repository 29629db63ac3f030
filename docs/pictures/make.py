#!/usr/bin/env python3
"""Makes the pictures of this directory from real runs: make.py target/release/fabro

Needs Chromium, and Playwright from PyPI (`pip install playwright`; CHROMIUM names another program).
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
SIZE = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 860}

# A gate whose stage before it changed files: the run waits for an answer.
RELEASE = """digraph release {
  goal="Release {{ inputs.version }}"
  start -> build
  build [shape=parallelogram, label="Build", script="mkdir -p test-results; echo '<testsuite tests=\\"24\\"/>' > test-results/junit.xml; echo 'version = {{ inputs.version }}' > version.txt; echo '24 tests passed'"]
  build -> ask
  ask [shape=hexagon, label="Release this version to customers?"]
  ask -> exit [label="[Y] Yes, release it"]
  ask -> build [label="[N] No, build it again"]
}
"""
RELEASE_TOML = """_version = 1
[run.inputs]
version = "1.2.3"
[run.git]
worktree = true
"""


def fabro(program, directory, *args):
    """What a command prints; runs of the examples may end with another code than 0."""
    result = subprocess.run(
        [program, *args], cwd=directory, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if result.returncode not in (0, 1, 3):
        sys.exit(f"fabro {' '.join(args)}: {result.stderr}")
    return result.stdout


def make_release(program, directory):
    """A project with a run that waits at a gate."""
    workflow = Path(directory) / ".fabro" / "workflows" / "release"
    workflow.mkdir(parents=True)
    (workflow / "workflow.fabro").write_text(RELEASE)
    (workflow / "workflow.toml").write_text(RELEASE_TOML)
    (Path(directory) / "version.txt").write_text("version = 1.2.2\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com"]
    for command in (["init", "-q"], ["add", "version.txt"], ["commit", "-qm", "Version 1.2.2"]):
        subprocess.run([*git, *command], cwd=directory, check=True)
    fabro(program, directory, "run", "release")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    program = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        for name in ("review-panel", "data-pipeline", "fix-until-green"):
            shutil.copytree(EXAMPLES / name, Path(directory) / name)
            fabro(program, directory, "run", f"{name}/run.toml", "--auto-approve")
        report = Path(directory) / "report.html"
        fabro(program, directory, "report", "latest", "-o", str(report))
        make_release(program, directory)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

        def shoot(page, name):
            page.wait_for_timeout(1500)
            page.screenshot(path=str(HERE / f"{name}.png"))

        light = browser.new_page(viewport=SIZE, color_scheme="light")
        light.goto(report.as_uri())
        shoot(light, "report")
        dark = browser.new_page(viewport=SIZE, color_scheme="dark")
        dark.goto(report.as_uri() + "#fix@1")
        shoot(dark, "report-stage")

        server = subprocess.Popen(
            [program, "serve", "--port", "0"], cwd=directory, stdout=subprocess.PIPE, text=True
        )
        try:
            line = next(line for line in server.stdout if "#token=" in line)
            address = re.search(r"http://\S+", line).group()
            page = browser.new_page(viewport=SIZE, color_scheme="light")
            page.goto(address)
            shoot(page, "runs")
            base = page.url.split("#")[0].rstrip("/")
            page.goto(base + "/gates")
            shoot(page, "inbox")
            page.goto(base + "/start/release")
            shoot(page, "start")
            page.goto(base + "/")
            page.click("main a[href^='/runs/']:has-text('FixUntilGreen')")
            page.wait_for_load_state()
            run = page.url.split("?")[0]
            shoot(page, "run")
            page.goto(run + "/stages/fix@1")
            shoot(page, "stage")
            page.goto(run + "/context?from=test@1&to=fix@1")
            shoot(page, "context")
            page.goto(run + "/workflow")
            shoot(page, "workflow")
            page.goto(run + "/logs")
            shoot(page, "logs")
            page.goto(run + "/fork?stage=fix@1")
            shoot(page, "fork")
            phone = browser.new_page(viewport=PHONE, color_scheme="dark")
            phone.goto(address)
            phone.wait_for_timeout(500)
            phone.goto(run)
            shoot(phone, "phone")
        finally:
            server.terminate()
        browser.close()


if __name__ == "__main__":
    main()
