"""Checks that the sources of the answer are files of the notes, and prints the answer."""

import json
import os
import pathlib
import sys

answer = json.loads(os.environ["ANSWER"])
notes = {path.name for path in (pathlib.Path(__file__).parent / "notes").glob("*.md")}
unknown = [source for source in answer["sources"] if pathlib.Path(source).name not in notes]
if unknown:
    sys.exit(f"there are no such notes: {', '.join(unknown)}")
print(answer["answer"], "Sources:", ", ".join(answer["sources"]))
