"""Several schedules beside each other.

============  =================================================================================
difference    the parts of the difference of two runs
total_memory  the memory of a run as one line
compare       several schedules under one time axis
race          runs of one model against each other, in a picture that plays by itself: ``race``
outline       half of a schedule: ``draw_sketch``; yours above the target's: ``beside_target``
============  =================================================================================
"""
