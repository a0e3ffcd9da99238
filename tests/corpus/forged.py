"""Calls that a program writes into its recording by hand."""

from __future__ import annotations

from . import Program, changed

RAW = """
import lib.recording.recorder as taped

class Raw(list):
    pass

def numbers(writer, one):
    if isinstance(one, list):
        return [numbers(writer, part) for part in one]
    return writer.number(one) if hasattr(one, 'labels') else one

written = taped.Writer.calls_and_failures

def forged(self):
    notes, failed = self.notes, []
    for note in notes:
        if isinstance(note, Raw):
            self._write(numbers(self, note), 0)
        else:
            self.notes = [note]
            failed += written(self)['failed']
    return {'calls': self.calls, 'failed': failed}

taped.Writer.calls_and_failures = forged

"""
"""How a program gets calls of its own into a recording: as they are written, with tensors in place of their numbers."""


def raw(name: str, title: str, *edits: tuple[str, str], says: str) -> Program:
    """A solution that is changed, and writes calls of its own."""
    own = changed(name, title, *edits, says=says)
    return own._replace(source=own.source.replace(f"async def {name}(", f"{RAW}async def {name}(", 1))
