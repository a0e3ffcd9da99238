"""The figures of a run, read off its log.

=========  ======================================================================
chain      why a run takes as long as it does: the longest chain of operations
waiting    when a rank does nothing, and for whom it waits there
score      time, peak memory, idle time
breakdown  where the time of all ranks goes, in parts that add up to all of it
=========  ======================================================================
"""
