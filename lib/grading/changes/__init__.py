"""One small change of a program with which it passes, found by trying.

=======  ======================================================================
edits    the small changes of a program's text, and how likely each is
program  what a function is made of, in its own cell and in others
tried    runs a program with one change after the other, until it passes
=======  ======================================================================
"""
