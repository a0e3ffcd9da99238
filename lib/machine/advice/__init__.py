"""What to write instead, where that depends on several ranks: they wait for each other, or bring what does not fit.

======  ================================================================================
sought  what a rank has looked for in a dictionary before it waits for a message
stages  which layers a rank should have in a pipeline, and what it has still to do
ring    tensors that go round a ring of ranks: who passes on less than others
ready   what ranks that wait for anyone could go on with, or have made and not sent on
circle  ranks that wait for each other's messages, and what should come first
astray  messages that have gone to a rank that has no use for them
misfit  a collective whose tensors do not fit, or whose ranks call another one
rounds  stages that go round the ranks: how many micro-batches a round has, and how many forwards come first
tasks   tasks of a rank that wait for each other, by their own events and queues
stuck   the report of a deadlock, and the way out
======  ================================================================================
"""
