"""Why a run is wrong, slow or large: worked out afterwards from its recording, in this package alone.

===========  ===================================================================
notes        a replay that notes each call, and what becomes of each tensor
lineage      where a tensor comes from, where it is, where it has stopped
statement    what is said, as data: calls, tensors, the name of a sentence
compare      this run beside the right one that is nearest to it
costs        what makes it slower or larger
spelling     what never reaches the machine, from the text of a program
explanation  which of all that is said of a run
words        the sentences
===========  ===================================================================
"""
