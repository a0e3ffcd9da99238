"""Profiles of real runs: the files of PyTorch's profiler and of NCCL's flight recorder, read into the records of a run.

========  ======================================================================
streams   a file as a stream of its entries, however large it is
pickles   a pickle that may only have plain data in it
calls     what a file says of one rank: its work, and its calls of the network
labels    what the names in such files mean
launched  what calls of the network launch on a GPU besides NCCL's kernels
kineto    the files of PyTorch's profiler
recorder  the dumps of NCCL's flight recorder
meetings  which calls of several ranks belong together, and who did not come
clocks    clocks of several machines, set by what must have happened first
causes    who waits for whom, and the longest chain, where a clock has measured
profile   all of that as one profile, which is drawn and compared like a run
files     ``trace``: from files to a profile
========  ======================================================================
"""
