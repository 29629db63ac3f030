# Writes the change as a patch into the run's directory, and prints it. Fails when nothing was changed.
patch="$FABRO_RUN_DIR/fix.patch"
diff -u "$FABRO_WORKFLOW_DIR/project/stats.py" "$FABRO_RUN_DIR/red-ci-demo/stats.py" > "$patch"
cat "$patch" && echo "$patch" && test -s "$patch"
