"""Pipeline schedules as rows of actions, in the form that PyTorch prints, writes and loads.

========  ======================================================================
actions   one action of a row: 0F0, 1SEND_F0, 2UNSHARD, (0F1;1B0)OVERLAP_F_B
rows      a text or a file becomes one row of actions a rank
order     where the stages lie, and whether each does each micro-batch once
messages  what is sent between ranks, and whether the rows come to an end
weights   weights that are whole on their rank, or shards that are gathered
program   rows as a function that run, draw, grade and the engines take
figures   time and memory of rows without running them
task      what a search looks for, and the bounds that all rows have
moves     rows made by a rule, and by moving one piece of work at a time
exported  a pipeline's run as rows, which PyTorch loads
========  ======================================================================
"""
