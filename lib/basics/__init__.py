"""The basics on which everything else is built.

===============  ======================================================================
folders          where the project lies: a clone, or what is installed
units            ticks and elements, kept exact
rules            the rules that a program can break, each with its sentence
errors           errors as data: rule, place, expected and got, and lines of a learner's code
arguments        checks of a learner's arguments
columns          tables as text
saving           files written completely or not at all, by one process at a time
cells            the cells of a running notebook, as texts
streams          standard streams that cannot fail
collector        garbage that is not looked for while much is made
asyncio_private  the private details of asyncio, which no other module touches
===============  ======================================================================
"""

import os
import sys

if sys.argv[:1] == ["-m"] and os.path.realpath(sys.path[0]) != os.path.realpath(os.path.join(__path__[0], "..", "..")):
    # python -m lib: the current folder comes first, and a learner's random.py in it would be taken for Python's. This
    # runs before all else of lib. (The command training-puzzles never has that folder.)
    del sys.path[0]
