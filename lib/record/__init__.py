"""What happened in a run, as data: what a tensor is in words and sets, which operations there are, and the log.

===========  ======================================================================
kinds        the kinds of tensor, one row each
shards       sets of pieces of a whole, and their arithmetic
causal       which slices of a sequence see which
labels       what a tensor is: kind, layer, micro-batches, shards; how tensors are cut, joined and summed
operations   what one row of the table of operations says
rules        what the operations of training insist on
training     forward, loss, backward, update: what each takes and makes
attention    a layer in three steps, for slices of a sequence
collectives  all-reduce, all-gather, reduce-scatter
heads        slices of a sequence turned into heads of attention, and back
experts      layers with experts: all-to-all, and what an expert computes
table        the table of operations
events       the log: one frozen record for each thing that a rank did
figures      what is read off the log: time, memory, where the time goes, and why
codes        the log as text: a line a rank, a short code an operation
===========  ======================================================================
"""
