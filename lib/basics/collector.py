"""Python's collector of cyclic garbage, which looks at all that a run makes again and again, and finds nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off(cycles: bool = False) -> Iterator[None]:
    """Switch off cyclic garbage collection inside the block: with 38,000 events it took a third of the time.

    Then new objects are marked as old by a freeze, since a first collection would take a tenth of a run and find
    nothing: a run leaves no cycles (``test_lives``). After an error, or with ``cycles``, this is left out."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        if enabled and not cycles and not gc.get_freeze_count():  # what somebody else has frozen is to stay so
            gc.freeze()
            gc.unfreeze()
    finally:
        if enabled:
            gc.enable()
