"""Many runs for one question: which program, at which size, on which machine.

============  ======================================================================
sweep         several programs at many sizes: time and memory of each
search        faster pipelines in less memory: the order of the work on each rank
ways          which meshes, micro-batches and recomputation a planner tries
planned       the programs that it tries unless it is given others
least         what each way takes at the least, without a run
alternatives  what could be given to it instead, where nothing fits
plan          the best way to train a model: programs on all meshes of a cluster
============  ======================================================================
"""
