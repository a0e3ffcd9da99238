"""The figures of a run, read off its log.

==========  ======================================================================
chain       why a run takes as long as it does: the longest chain of operations
waiting     when a rank does nothing, and for whom it waits there
measured    both, where a clock has measured
score       time, peak memory, idle time
breakdown   where the time of all ranks goes, in parts that add up to all of it
difference  how much longer each part of the time of a run is than that of another
attending   who attends to what, and when
dealt       which tokens go to which experts, and how long these take
==========  ======================================================================
"""
