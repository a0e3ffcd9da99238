"""The pages that people read before they begin: README.md, docs/ and the gallery.

profiled      the profile that docs/traces.md tells of
pipelines     the pipelines of docs/schedules.md
measured      what the figures in docs/ are made of
docs          these pages with their figures, and the table of puzzles in README.md
shown         the programs that the gallery shows
families      the puzzles whose schedules stand together
gallery_page  the page of the gallery, with places for what the build draws
gallery       the gallery, and the race at its head and at that of README.md
board         the page on which a schedule is moved by hand
shared        that race as a photograph, which other sites show beside a link
"""
