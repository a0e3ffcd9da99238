"""Profiles of real runs: the files of PyTorch's profiler and of NCCL's flight recorder, read into the records of a run.

========  ======================================================================
streams   a file as a stream of its entries, however large it is; pickles of plain data
calls     what a file says of one rank: its work, and its calls of the network
labels    what the names in such files mean
kineto    the files of PyTorch's profiler
recorder  the dumps of NCCL's flight recorder
meetings  which calls of several ranks belong together, and who did not come
clocks    clocks of several machines, set by what must have happened first
profile   all of that as one profile, which is drawn and compared like a run
files     ``trace``: from files to a profile
========  ======================================================================
"""
