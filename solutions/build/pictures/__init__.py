"""The pictures that the build draws.

schedules  schedules for a web page, on one scale and with one legend
race       the picture that the project begins with: pipelines that race
in_texts   the pictures in the texts of notebooks
"""
