"""What a learner touches. It has labels and opaque tokens, and decides nothing.

========  ======================================================================
tensors   the kinds of tensor
storage   the five dictionaries
watch     finds out when every coroutine waits under somebody else's loop
calls     a call in flight, to be awaited now or later
dist      the machine as the learner names it
pricing   docstrings of verbs that know their prices
slices    the verbs of a layer in three steps
experts   the verbs of layers with experts
model     a rank: five dictionaries, and the verbs of training
========  ======================================================================
"""
