"""Running a learner's function on every rank.

=========  ======================================================================
limits     wall-clock limits, also for code that swallows what it is thrown
loop       an event loop that knows when nothing can go on
advice     what to do about errors that Python raises
execution  one run: the loop, the ranks' tasks, what they print, and how it ends
workload   what is trained when tensors hold numbers
run        run(fn, ranks=4, ...), and the Run that it gives
sweep      several programs at many sizes: time and memory of each
plan       programs on all meshes of a cluster: how to train a model
=========  ======================================================================
"""
