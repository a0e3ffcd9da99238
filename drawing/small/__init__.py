"""Small pictures of one idea, composed with chalk's combinators.

==========  ===================================================
tensors     small pictures: ``draw_group``
holds       what each rank has in memory at a moment: ``holds``
primitives  what a collective does: ``draw_primitive``
tokens      which tokens go to which experts: ``draw_tokens``
attention   who attends to what, and when: ``draw_attention``
==========  ===================================================
"""
