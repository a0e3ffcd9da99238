"""Layers that are divided by what goes through them, with numbers: by slices of a sequence, and by tokens.

=========  ====================================================================
attention  a layer in three steps, for slices of a sequence
experts    what experts compute, and tokens on their way to them and home
=========  ====================================================================
"""
