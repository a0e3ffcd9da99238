"""One small change of a program that makes it right, found by trying.

=====  ======================================================================
edits  the small changes of a program's text, the likeliest first
tried  runs a program with one change after the other until it is right
=====  ======================================================================
"""
