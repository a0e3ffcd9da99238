"""What a run needs whose ranks are processes, with torch.distributed between them.

======  ==========================================================================
host    the simulator of such a run: everything but the numbers
lane    how tensors travel between processes, in a thread of its own
rank    one rank: the learner's function, numbers, a line to the host
zygote  a process that has imported torch once, and forks the ranks
======  ==========================================================================
"""
