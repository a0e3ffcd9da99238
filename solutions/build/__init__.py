"""Make the blank notebooks and the tables of puzzles from their one source, the files beside this package.

    python -m solutions.build            write puzzles/*.ipynb, the gallery, the tables in lib and in README.md
    python -m solutions.build --check    write nothing, fail where they differ from what would be written

A source is a Python file in jupytext's percent format. A cell tagged ``spec`` holds the literal figures of the puzzle
that follows, which go to lib/specs.json; a cell tagged ``solution`` and everything between ``### BEGIN SOLUTION`` and
``### END SOLUTION`` is left out of the blank notebook. A cell tagged ``figures``, the last, names the runs and numbers
of which the figures in the texts are made (see ``figures``). Where a program is to be repaired, ``### BROKEN`` stands
between the two, and below it, as comments, what the blank has instead.

Nothing is written before everything is made: a build that fails leaves all files as they were. In reading order:

sources    the sources: their cells, blanks and spec cells
runs       their programs, run
figures    the figures in their texts
tables     the tables in lib
pictures   the pictures in notebooks and on pages
notebooks  the notebooks
pages      README.md, docs/ and the gallery
products   all that the build makes
elsewhere  the same for Colab, for the browser alone, and as a site
__main__   ``python -m solutions.build``
"""
