"""The machine: it decides what is right, how long it takes and what it holds.

============  ======================================================================
mesh          where ranks sit: axes, groups, nodes
uneven        a machine that is not even: slow ranks, slow links, jitter
cost          prices and sizes
fingerprints  what a tensor carries: a fingerprint in an exact algebra
failure       how a run that failed has ended
interface     the narrow interface to all that decides
rank_state    what the machine knows of one rank and its tensors: lives, memory, log
in_flight     calls, messages and meetings on their way; a rank's links
log           the log of a rank, whose records are made when they are read
deadlock      the report of a deadlock: what each rank waits for
network       who meets whom, and when
waiting       links on which sends wait for their receives
deferred_memory  memory of a sample that is known only afterwards
simulator     everything that decides, of a machine in this process
lives         the same with notes: what a peak of memory is made of
pieces        what is held as pieces of the layers, for a picture
check         right or wrong
outcome       what a run leaves behind
============  ======================================================================
"""
