"""Many runs, or all puzzles, in one chart.

===========  ==========================================================================
time_memory  a chart of time and memory
attempts     right attempts in that chart: ``draw_attempts``
sweep        many runs in that chart: ``draw_sweep``
explore      sliders for the size, above the picture: ``explore``
course       the map of all puzzles, with schedules as small as stamps: ``draw_course``
verdict      what a verdict shows below its words, and a card to keep: ``draw_card``
===========  ==========================================================================
"""
