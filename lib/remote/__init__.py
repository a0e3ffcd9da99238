"""The machine at the other end of a line: for workers of the grader, and for ranks that are processes.

============  ======================================================================
wire          one message a line
clerk         the end that holds the books: answers, and believes nothing
remote_books  the other end: books of which only labels and numbers are here
============  ======================================================================
"""
