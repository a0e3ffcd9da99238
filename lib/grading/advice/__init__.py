"""What to write where a program is right and too slow or too large, and what the text of a wrong one shows.

========  ======================================================================
ordering  in which order the ranks of a pipeline work, beside the program of a goal
holding   what a run holds at its peak, beside the program of a goal, and what of that for nothing
lateness  who waits for a message that its sender could have sent sooner
needless  calls that could be made, or awaited, at another time
shares       which rank has which micro-batches, and how else the ranks could share them
slowness  what makes a run slow, beside the program of a goal
sources   what the text of a program shows: coroutines that nobody awaits, numbers
slips     what it shows of names and lines: what all ranks share, what is read late, thrown away, or ends too soon
events    events and futures of a program, which it sets and waits for
========  ======================================================================
"""
