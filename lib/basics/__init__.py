"""What everything stands on.

===============  ======================================================================
units            ticks and elements, kept exact
errors           errors that say where, what was expected, what came, and what to write instead
arguments        checks of what a learner hands in
asyncio_private  the private details of asyncio, which no other module touches
===============  ======================================================================
"""
