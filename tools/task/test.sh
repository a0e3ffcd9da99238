#!/bin/bash
# Grades the answer, in a box that its author has never been in. Only {{answer}} comes from there.
exec python3 -I /tests/verify.py {{puzzle}} {{answer}} /logs/verifier /opt/llm-training-puzzles
