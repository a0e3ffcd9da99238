"""The sources of the notebooks, as they are read: cells, blanks and spec cells.

definitions  what a source defines, without what it runs and draws
files        which sources there are, in the order of the course, and their cells
blanks       a cell without its solution, or with the mistake that is to be found
overview     what the overview and the repairs say of each puzzle
specs        the figures of a puzzle, from its spec cell, and whether they are as they have to be
"""
