"""A learner's own notebooks, and JupyterLab on them.

========  ======================================================================
copies    notebooks of the learner's own, never overwritten
server    JupyterLab on them
commands  what may be typed at a shell, and how this program is called there
notebook  reset, for a notebook
shell     the commands lab, reset and gallery, and what there is to begin with
========  ======================================================================
"""
