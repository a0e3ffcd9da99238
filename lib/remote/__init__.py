"""The machine at the other end of a line: for workers of the grader, and for ranks that are processes.

============  ======================================================================
wire          one message a line
clerk         the end with the simulator, which answers and believes nothing
remote_simulator  the other end: simulator that ask for everything
============  ======================================================================
"""
