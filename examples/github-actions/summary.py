"""Prints the review as Markdown, also into the summary of the job. Ends with 1 when a finding is an error."""

import json
import os
import sys

review = json.loads(os.environ["REVIEW"])
lines = [review["summary"], ""]
for finding in review["findings"]:
    lines.append(f"- **{finding['severity']}** {finding['file']}:{finding['line']}: {finding['text']}")
text = "\n".join(lines) + "\n"
if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
    with open(summary, "a") as file:
        file.write(text)
print(text)
errors = [finding for finding in review["findings"] if finding["severity"] == "error"]
sys.exit(f"{len(errors)} of {len(review['findings'])} findings are errors" if errors else 0)
