"""What a learner touches. It has labels and opaque tokens, and decides nothing.

========  ======================================================================
tensors   the kinds of tensor
keys      how a learner writes keys of a layer and a micro-batch
texts     keys that are texts with such numbers in them
steps     what makes and what reads the input and the output of a layer in three steps
origins   where a tensor that is looked for comes to be, or has gone
rules     what may stand for a tensor that is looked for and is not there
missing   which of these rules speaks, and what to write, in which puzzle
kept      where a rank keeps what an operation should have been given
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
