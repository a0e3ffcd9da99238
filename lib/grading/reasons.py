"""Why a run fails, or is slower or larger than the target: worked out from its recording (see ``lib.explain``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..basics.errors import NOWHERE, PuzzleError
from ..course.layouts import Size
from ..course.specs import Puzzle, machine_of
from ..explain.explanation import explain
from ..explain.notes import Line, noted
from ..explain.reference import Reference
from ..explain.spelling import spelled
from ..explain.statement import Explanation
from ..machine.check import TRAINED
from ..machine.lives import Peak, WatchedSimulator
from ..machine.outcome import Outcome
from ..record.figures.score import peak_event
from ..recording.replay import Replay
from ..recording.wire import ProtocolError
from .references import is_explained

Recording = Mapping[str, Any]
References = Callable[[Puzzle, Size], Sequence[Reference]]
"""Returns right runs of a puzzle at a size."""
SECONDS = 20.0


def no_references(puzzle: Puzzle, size: Size) -> Sequence[Reference]:
    """Return none: less is said then."""
    return ()


class Reasons:
    """The run that decides a verdict. ``recording``: what it has called, or None where that is not known; ``source``:
    the text of the program, empty where that is not known; ``trouble``: why there is no explanation, where it fails."""

    def __init__(
        self, puzzle: Puzzle, size: Size, recording: Recording | None, references: References, source: str = ""
    ) -> None:
        self.puzzle, self.size, self.references, self.source = puzzle, size, references, source
        self.recording = recording
        self.trouble = ""

    def explanation(self, error: PuzzleError | None) -> Explanation | None:
        """Return why the run fails with this error or, without one, is slower or larger than the target's."""
        known = self.recording is not None and is_explained(self.size)
        return self._tried(partial(self._of_run, error)) if known else None

    def of_text(self) -> Explanation | None:
        """Return what the text of a program shows that does not do anything yet."""
        return self._tried(self._of_text)

    def _of_run(self, error: PuzzleError | None) -> Explanation:
        runs, puzzle = self.references(self.puzzle, self.size), self.puzzle
        return explain(self.recording or {}, error, runs, self.size, puzzle.cost, self.source, puzzle.size)

    def _of_text(self) -> Explanation:
        said = tuple(spelled(self.source, self.size, self.puzzle.size))
        return Explanation(NOWHERE, given=said, look_at=said[:1])

    def _tried(self, explained: Callable[[], Explanation]) -> Explanation | None:
        """Return an explanation; None where it fails, since a verdict does not depend on it, and of no recording."""
        try:
            return explained()
        except ProtocolError:
            return None
        except Exception as error:
            self.trouble = f"the explanation has failed ({type(error).__name__}: {error}): please report it"
            return None

    def find_line(self, error: PuzzleError, outcome: Outcome) -> None:
        """Give an error of a whole run, which has none, the learner's line of the operation that it is about: the last
        one that ``error.about`` names, or the one at the moment of its place."""
        place = error.place
        if error.line or place.rank is None or (error.about is None and place.tick is None):
            return
        which = error.about or (place.operation, place.layer)
        own = [event for event in outcome.events if event.rank == place.rank]
        places = [
            at
            for at, event in enumerate(own)
            if (event.kind, event.layer) == which and (error.about is not None or event.issued == place.tick)
        ]
        error.line = self.lines(place.rank).get(places[-1], "") if places else ""

    def lines(self, rank: int) -> Mapping[int, str]:
        """Return the learner's lines of a rank by their places in its log."""
        if self.recording is None:
            return {}
        calls = noted(self.recording, self.size, self.puzzle.cost).calls.get(rank, ())
        return {call.entry: _shown(call.line) for call in calls if call.line.number}

    def peak(self, outcome: Outcome) -> Peak | None:
        """Return what the rank with the highest peak holds there, with the learner's lines of its log."""
        highest = peak_event(outcome.device_events)
        if highest is None or self.recording is None:
            return None
        size = self.size
        simulator = WatchedSimulator(machine_of(size, self.puzzle.cost), highest.rank)
        replay = Replay(simulator, size["layers"], size["batches"], size.get("train", TRAINED[0]))
        try:
            replay.play({part: self.recording[part] for part in ("calls", "failed")}, time.monotonic() + SECONDS)
            replay.outcome("")
        except TimeoutError:
            return None
        lines = self.lines(highest.rank)
        ends = max(lines, default=-1) + 1
        return simulator.peak._replace(lines=tuple(lines.get(place, "") for place in range(ends)))


def _shown(line: Line) -> str:
    """Return a line as errors show it."""
    of = f" of {line.file}" if line.file else ""
    return f"line {line.number}{of}: {line.text}"
