"""The tables in lib: of the puzzles, of what their solutions may show, and of figures in the texts on solutions.

silhouettes  a run in letters
outlines     half of a schedule, and the busy times of ranks
outlined     the rows of outlines.json and of what is secret
puzzles      the rows of specs.json
reference    the rows of what `reference()` shows
"""
