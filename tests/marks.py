"""Why tests are left out, in one place each: every reason says what nobody has tried, and what to do about it."""

from importlib.util import find_spec

import pytest

MISSING = [name for name in ("torch", "cloudpickle") if find_spec(name) is None]
NO_TORCH = "NOT TRIED WITH REAL TENSORS: torch is not installed (make real)"
needs_torch = pytest.mark.skipif("torch" in MISSING, reason=NO_TORCH)
needs_processes = pytest.mark.skipif(
    bool(MISSING), reason=f"NOT TRIED ON REAL PROCESSES: {' and '.join(MISSING)} not installed (make real)"
)
NOT_COMPARED = "NOT COMPARED WITH PYTORCH: torch is not installed (make real)"
compares_with_torch = pytest.mark.skipif("torch" in MISSING, reason=NOT_COMPARED)
