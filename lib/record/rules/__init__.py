"""What the operations of training insist on, and what to write where that does not hold.

==========  ======================================================================
operands    what a weight, an input and a gradient have to be, whatever reads them
whence      from where a tensor of the wrong layer has come
passes      forward, backward and loss: whether their operands go together
incomplete  how a rank comes by the micro-batches that its gradient lacks
updates     the optimizer step: a complete gradient, weight and state of the same piece
==========  ======================================================================
"""
