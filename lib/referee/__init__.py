"""Grading untrusted code at a shell: each file in a process of its own.

===========  ======================================================================
files        verdicts for other programs: JSON, JUnit, Gradescope, CSV
leaderboard  a class, those with most points first
namespaces   a process without network, files and other processes
seccomp      a process that starts no other
defined      which puzzles a loaded file attempts
worker       the process in which a learner's code runs
fork_server  a process that has imported lib already, and forks workers
sandbox      starts that and a worker, and ends all that is left of it
known        what earlier replays have shown
referee      how workers are kept apart here
loaded       a file in a worker, and the runs of its functions
handed_in    whose a file is, by the names of Canvas and Moodle
attempts     which files there are, and which attempts which puzzle
examiner     a process that judges attempts
session      several files and attempts, graded in parallel
classroom    a folder of submissions, a student each
script       python -m lib start: a blank puzzle as a script
shell        python -m lib grade, watch
===========  ======================================================================

THREATS.md, beside README.md, says what this stops and what it does not.
"""
