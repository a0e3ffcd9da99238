"""Grading untrusted code at a shell: each run in a process of its own.

=======  ======================================================================
files    verdicts for other programs: JSON, JUnit, Gradescope, CSV
jail     a process without network, files and other processes
worker   the process in which a learner's code runs
start    starts a worker
sandbox  starting a worker's process, and ending all that is left of it
referee  a run of a submission in a worker
shelf    which file attempts which puzzle
session  several attempts, graded in parallel
script   a blank puzzle as a script
shell    python -m lib grade, watch, start
=======  ======================================================================

What all this stops, and what it does not, is on one page: THREATS.md, beside README.md.
"""
