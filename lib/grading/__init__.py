"""The grader: from a function, in this process or in one of its own, to a verdict that can be read, stored and sent.

==================  ======================================================================
verdict             the one result model: what came of an attempt, of several
judge               right or not, at its own size and others; layout, rules, targets
page                to be read: a table for notebooks, a text
progress            the best so far, in a small file beside the notebooks
seal                whether this library is still what it was
answer              the solution of a puzzle, for those who are through with it
notebook            grade, hint, progress and solution, as a learner calls them in a cell
files               for other programs: JSON, JUnit, Gradescope, CSV
wire                one message a line, between a worker and the grader
clerk               the grader's end: answers out of the books, believes nothing
remote              the worker's end: books of which only numbers are here
submission          what is taken of a learner's notebook or script
jail                a process without network, files and other processes
worker, start       the process in which a learner's code runs
sandbox             starting a worker, and ending all that is left of it
referee             a run of a submission in a worker
shelf               which file attempts which puzzle
session             several attempts, graded in parallel
script              a blank puzzle as a script
shell               python -m lib grade, watch, start
==================  ======================================================================

What all this stops, and what it does not, is on one page: THREATS.md, beside README.md.
"""
