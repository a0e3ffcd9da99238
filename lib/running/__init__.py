"""Running a learner's function on every rank.

=========  ======================================================================
limits     wall-clock limits, also for code that catches every exception
loop       an event loop that knows when nothing can go on
execution  one run: the loop, the ranks' tasks, their output, and the end
workload   the training of tensors with numbers
trained    the ranks of a machine, trained, and the Run that this gives
effects    whether a function may do anything but work with its model
few        runs of few ranks that stand for all others
run        run(fn, ranks=4, ...)
noted      notes on the peak of a run that is known, from a run of few ranks
sweep      several programs at many sizes: time and memory of each
search     faster pipelines in less memory: the order of the work on each rank
ways       which meshes, micro-batches and recomputation a planner tries
planned    the programs that it tries unless it is given others
least      what each way takes at the least, without a run
instead    what could be given to it instead, where nothing fits
plan       the best way to train a model: programs on all meshes of a cluster
=========  ======================================================================
"""
