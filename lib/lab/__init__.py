"""A learner's own notebooks, and JupyterLab on them.

======  ======================================================================
copies  notebooks of the learner's own, never overwritten
server  JupyterLab on them
shell   the commands lab, reset and gallery, and what there is to begin with
======  ======================================================================
"""
