"""The programs of the sources, run.

programs  what a source defines, and a run of it, each once in a build
course    the programs of the puzzles, at the puzzles' own sizes
priced    a solution on real GPUs: what a step takes
"""
