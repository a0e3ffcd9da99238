"""A notebook of a source.

address     where the project is published, and links to it
around      what stands around the cells of a source: facts, help, links
first_cell  the code of the cell that finds the project around a notebook
notebook    the whole, blank or solved
"""
