"""What a run needs whose ranks are processes, with torch.distributed between them.

===========  ========================================================================
recording    the whole machine simulated, and what one rank has to do for real in it
supervisor   who is at which operation, whether all do the same, and who has died
meter        how many numbers are alive in a process
links        how tensors travel between processes, in threads of their own
rank         one rank: what was recorded, done with real numbers
fork_server  a process that has imported torch once, and forks the ranks
===========  ========================================================================
"""
