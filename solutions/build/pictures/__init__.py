"""The pictures that the build draws.

schedules  schedules for a web page, on one scale and with one legend
strips     several schedules as one small strip
hero       the picture that the course begins with
in_texts   the pictures in the texts of notebooks
"""
