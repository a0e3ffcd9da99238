"""A notebook of a source.

address     where the project is published, and links to it
around      what stands around the cells of a source: facts, help, links
notebook    the whole, blank or solved
"""
