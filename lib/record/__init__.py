"""What happened in a run, as data: what a tensor is in words and sets, which operations there are, and the log.

===========  ======================================================================
kinds        the kinds of tensor, one row each
shards       sets of pieces of a whole, and their arithmetic
causal       which slices of a sequence see which
labels       what a tensor is: kind, layer, micro-batches, shards; how tensors are cut, joined and summed
operations   what one row of the table of operations says
training     forward, loss, backward, update: what each insists on and makes
attention    a layer in three steps, for slices of a sequence
collectives  all-reduce, all-gather, reduce-scatter
heads        slices of a sequence turned into heads of attention, and back
experts      layers with experts: all-to-all, and what an expert computes
table        the table of operations
events       the log: one frozen record for each thing that a rank did
chain        why a run takes as long as it does: the longest chain of operations
waiting      when a rank does nothing, and for whom it waits there
score        the figures that are read off the log: time, peak memory, idle time
breakdown    where the time of all ranks goes, in parts that add up to all of it
codes        the log as text: a line a rank, a short code an operation
===========  ======================================================================
"""
