"""One small change of a program with which it passes, found by trying.

===========  ==========================================================================
text         a definition as text: where its expressions and statements stand
expressions  what may have been meant by an expression
statements   where a statement may have been meant to stand
edits        all small changes of a program, and how likely each is
reached      which lines of a program run
program      what a function is made of, in its own cell and in others
tried        runs a program with one change after the other, until it passes
===========  ==========================================================================
"""
