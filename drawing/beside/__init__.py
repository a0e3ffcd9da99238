"""Several schedules beside each other.

=======  =================================================================================
compare  several schedules under one time axis, and the differences from one to the next
race     runs of one model against each other, in a picture that plays by itself: ``race``
outline  half of a schedule: ``draw_sketch``; yours above the target's: ``beside_target``
=======  =================================================================================
"""
