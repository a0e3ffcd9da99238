"""What a run of all ranks leaves behind, as it follows from what a few of them leave behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain

from ..basics.collector import collector_off
from ..basics.errors import PuzzleError, witnessed
from ..machine.check import TRAINED, check_finals
from ..machine.cost import Shape
from ..machine.interface import FinalState
from ..machine.outcome import Outcome
from ..record.events import Event
from .symmetry import Symmetry


class OutcomeOfAll(Outcome):
    """The outcome of all ranks, made of the final states and the logs of those that were run."""

    def __init__(
        self,
        name: str,
        shape: Shape,
        own_states: Sequence[FinalState],
        own_logs: Iterable[Sequence[Event]],
        train: str = TRAINED[0],
        *,
        symmetry: Symmetry,
    ) -> None:
        self._symmetry, self._own_states = symmetry, own_states
        self._own = {state.rank: log for state, log in zip(own_states, own_logs, strict=True)}
        Outcome.__init__(self, name, shape, own_states, symmetry.logs(self._own), train)
        del self.final_states  # of all ranks, when somebody asks
        self._finals = None

    @cached_property
    def final_states(self) -> tuple[FinalState, ...]:  # type: ignore[override]
        """What each rank begins and ends with. Raises Unlike if it does not follow."""
        with collector_off():
            return tuple(self._symmetry.states(self._own_states))

    @property
    def ran(self) -> frozenset[int]:
        """The ranks that were run."""
        return self._symmetry.run

    @cached_property
    def distinct(self) -> Sequence[Event]:
        """The records of the ranks that were run (see ``Outcome``)."""
        return tuple(chain.from_iterable([self._own[rank] for rank in sorted(self._own)]))

    @property
    def shares(self) -> tuple[Sequence[Event], int]:
        """The records of the ranks from which the others follow (see ``Outcome``)."""
        first = sorted(self._symmetry.first)
        return tuple(chain.from_iterable([self._own[rank] for rank in first])), len(first)

    def verify(self) -> str:
        """Do as ever. Final weights that are right are so by those of the ranks that were run."""
        unasked = witnessed.set(None)
        try:
            check_finals(self._own_states, self.train, self._symmetry.finals)
        except PuzzleError:
            pass  # what is to be said of it may depend on all ranks
        else:
            if self.attempted:
                return "Correct!"
        finally:
            witnessed.reset(unasked)
        return super().verify()
