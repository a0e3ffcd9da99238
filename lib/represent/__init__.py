"""Ranks that stand for others: a few are run for all that do the same, and what all do follows from them.

==========  ======================================================================
coordinate  a number that knows its value on every rank
values      what the tensors of the others carry
symmetry    which ranks are run, for whom they stand, and what follows from them
follow      runs the others, too, beside what these have called, where that is to be seen
links       a network that adds the ranks that are not simulated
==========  ======================================================================
"""
