"""What pictures are made of: a run's data, colors, words, chalk's leaves, SVG, files.

========  ==================================================
standing  whose run it is, and what its puzzle refuses of it
theme     colors, by role and by kind
trace     the data of a picture
texts     numbers, names and sentences
marks     cheap chalk leaves
letters   the room that texts take
svg       from chalk's tree to SVG
figure    a diagram that shows itself; pictures as files
========  ==================================================
"""
