"""The source of every notebook: text, puzzle, targets, hints and solution.

It is never installed. To import a source as a module defines what it defines, and runs nothing.
"""

from . import definitions

definitions.use()
