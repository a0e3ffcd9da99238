"""What everything stands on.

===============  ======================================================================
units            ticks and elements, kept exact
errors           errors that say where, what was expected, what came, and what to write instead
arguments        checking what a learner hands in
asyncio_private  every private detail of asyncio that is needed, and no other module touches one
===============  ======================================================================
"""
