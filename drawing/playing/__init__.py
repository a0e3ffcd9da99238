"""A schedule that plays: a page of one's own, and a file for another viewer.

========  ============================================================================
playback  the data of a page that plays a schedule
player    that page: ``play``; and one on which a schedule is moved by hand: ``board``
perfetto  the schedule for another viewer
========  ============================================================================
"""
