#!/bin/sh
# Stands for the tests of a project.
test "$(printf %s 2026 | wc -c)" -eq 4 && echo "1 test passed"
