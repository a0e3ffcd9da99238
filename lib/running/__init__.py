"""Running a learner's function on every rank.

=========  ======================================================================
limits     wall-clock limits, also for code that catches every exception
loop       an event loop that knows when nothing can go on
execution  one run: the loop, the ranks' tasks, their output, and the end
workload   the training of tensors with numbers
trained    the ranks of a machine, trained, and the Run that this gives
few        runs of few ranks that stand for all others
run        run(fn, ranks=4, ...)
options    what it is told of a machine, as options at a shell
=========  ======================================================================
"""
