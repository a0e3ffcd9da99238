"""The source of every notebook: text, puzzle, targets, hints and solution.

What makes the notebooks is in ``build``. To import a source as a module defines what it
defines, and runs nothing. This package is never installed.
"""

from .build.sources import definitions

definitions.use()
