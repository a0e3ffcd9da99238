"""What the operations of training insist on.

========  ======================================================================
operands  what a weight, an input and a gradient have to be, whatever reads them
passes    forward, backward and loss: whether their operands go together
updates   the optimizer step: a complete gradient, weight and state of the same piece
========  ======================================================================
"""
