"""What to write instead, where that depends on several ranks: they wait for each other, or bring what does not fit.

======  ======================================================================
circle  ranks that wait for each other's messages, and what should come first
misfit  a collective whose tensors do not fit, or whose ranks call another one
stuck   the report of a deadlock, and the way out
======  ======================================================================
"""
