"""Grading untrusted code at a shell: each run in a process of its own.

=======  ======================================================================
files    verdicts for other programs: JSON, JUnit, Gradescope, CSV
jail     a process without network, files and other processes
worker   the process in which a learner's code runs
start    starts a worker
sandbox  starts a worker's process, and ends all that is left of it
referee  runs a submission in a worker
shelf    which file attempts which puzzle
session  several attempts, graded in parallel
script   python -m lib start: a blank puzzle as a script
shell    python -m lib grade, watch
=======  ======================================================================

THREATS.md, beside README.md, says what this stops and what it does not.
"""
