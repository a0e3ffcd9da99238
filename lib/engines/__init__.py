"""Engines with real tensors: what runs on the simulated machine, run with numbers.

The machine's clock, memory, rules and log stay what they are. Each tensor carries numbers besides its fingerprint, and
the trained weights are compared with an independent reference. The modules, in reading order (``running.run`` imports
an engine by its name when it is asked for):

===========  ===================================================================
layers       what a layer computes: a residual MLP, a transformer block
data         inputs, targets, first weights and optimizer states, from a seed
pieces       numbers of a part of a weight: cut, joined, cut again
divided      layers that are divided by slices of a sequence, or by tokens
numbers      the arithmetic of real tensors
pairs        what a tensor carries: a fingerprint, and numbers
agreement    how far trained weights are from the reference, in figures and words
reference    the same training by torch itself
distributed  what a run needs whose ranks are processes
result       what a run with real tensors leaves behind
local        all ranks in this process
processes    a run of processes, from its start to its end
torchrun     one rank of a run, as torchrun starts it
torch_order  what PyTorch itself starts in such a step, in order
like         a run of yours beside that, and where they first differ
shell        python -m lib run, and worker for torchrun
===========  ===================================================================
"""
