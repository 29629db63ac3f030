set -eu
if [ -n "${GITHUB_BASE_REF:-}" ]; then
  git diff "origin/$GITHUB_BASE_REF...HEAD"
else
  cat "$FABRO_WORKFLOW_DIR/change.diff"
fi
