"""The source of every notebook: text, puzzle, targets, hints and solution.

What makes the notebooks is in ``build``. To import a source as a module defines what it
defines, and runs nothing, also where the course is installed, without ``build``.
"""

from .build.sources import definitions

definitions.use()
