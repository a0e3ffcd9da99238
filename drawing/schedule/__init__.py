"""A schedule under its axis of time: ``draw``.

==========  ====================================================================================
layout      rows, tracks, places: numbers only
operations  the look of an operation, and its hover text
numbering   where micro-batch numbers have room
gaps        when a rank does nothing, and for whom it waits
links       arrows from sends to receives, ties between the ranks of a collective
miniature   rows as small as stamps, and what fills most of their parts
coarse      the operations of the rows column by column, and strips of the network
overlays    the longest chain, what is held at the peak, a failed run, traffic within operations
boxes       the operations of the rows box by box
timeline    the rows, with what is behind and beside them
header      title, figures, and where the time of all ranks goes
peak        the reason for the peak of memory, as text
memory      the memory of each rank, below the rows
legend      what colors and signs mean, below the rows
picture     the whole picture: ``draw``
==========  ====================================================================================
"""
