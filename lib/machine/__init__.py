"""The machine that decides what is right, how long it takes and what it holds.

============  ======================================================================
mesh          where ranks sit: axes, groups, boxes
cost          prices and sizes
values        what a tensor carries: a fingerprint in an exact algebra
tensor_state  what the machine knows of one tensor
in_flight     calls, messages and meetings on their way
rank_state    what the machine knows of one rank: its tensors, its memory, its log
late_memory   memory of a sample that is known only afterwards
collectives   what a collective does to its tensors
network       who meets whom, and when
rules         what each operation insists on
books         everything that decides, behind one narrow interface
check         right or wrong
outcome       what a run leaves behind
============  ======================================================================
"""
