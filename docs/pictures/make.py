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


def fabro(program, directory, *args):
    """What a command prints; runs of the examples may end with another code than 0."""
    result = subprocess.run(
        [program, *args], cwd=directory, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if result.returncode not in (0, 1):
        sys.exit(f"fabro {' '.join(args)}: {result.stderr}")
    return result.stdout


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
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

        def shoot(page, name):
            page.wait_for_timeout(500)
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
            page.click("main a[href^='/runs/']")
            shoot(page, "run")
            page.goto(page.url.split("?")[0] + "/stages/fix@1")
            shoot(page, "stage")
        finally:
            server.terminate()
        browser.close()


if __name__ == "__main__":
    main()
