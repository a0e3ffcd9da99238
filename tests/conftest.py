"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# No test of ours depends on how fast the machine is, so neither do the generated ones.
settings.register_profile("project", deadline=None, print_blob=True)
settings.load_profile("project")
