#!/usr/bin/env bash
# Gradescope runs this once, when it builds the image of the autograder.
set -e
apt-get install --yes --no-install-recommends python3-pip python3-venv bubblewrap
python3 -m venv /opt/grader
/opt/grader/bin/pip install llm-training-puzzles
