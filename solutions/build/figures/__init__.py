"""The figures in texts. Each is computed by the build, from runs and names that the page itself gives.

The last cell of a source, tagged ``figures``, gives names: to runs (``halves = run(...)``), to what is published or
assumed (``gpus = published(16_384, "arXiv 2407.21783")``), and to what follows from these. A text has an expression of
such names between double braces, and after a colon how to write it: ``{{halves.time}} ticks, {{idle:percent}}``.

- Without a way of writing, a number stands as it is, exactly, with commas. With more than three decimals it is refused.
- ``percent`` and ``%`` write a share, ``word`` a small number or fraction in letters, and any of Python's formats, such
  as ``.1f``, the rounded number.
- ``=`` writes the whole sum, with numbers for names: ``{{batches * 2 + 1:=}}`` is ``8 x 2 + 1 = 17``. Python's format
  may follow: ``{{bytes / speed:=.1f}}``.

A figure that a text gives in any other way fails the build, so that no page contradicts a run. The exceptions are names
("puzzle 4", "layer 0", "H100"), code, the size of the puzzle, and numbers up to two without a unit.

facts     sizes of models and machines, which every page can name
writing   a number as text, a sum, and a text with its figures
by_hand   the figures of a text that nothing computes
words     what a cell of figures may use besides
pages     the names of a page, and its texts with their figures
"""
