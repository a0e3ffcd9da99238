"""The profile that docs/traces.md tells of: puzzle 13's program in four processes."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from drawing import compare, draw
from lib import Profile, Run, run, trace
from lib.record.figures.breakdown import idle_of, share_text, time_parts

from ..pictures.schedules import in_files

SIZE: dict[str, Any] = {"ranks": 4, "layers": 4, "batches": 8}
"""What was run there, with ``engine="processes", pace=0.02, profile="profile"``."""
TITLE, PLANNED = "1F1B in four processes", "1F1B, simulated"


@cache
def profile_of(root: Path) -> Profile:
    """The profile, from the files that lie beside the page."""
    return trace(sorted((root / "docs" / "profile").glob("rank*.json.gz")), name=TITLE)


def _planned(program: Callable[[Any], Any]) -> Run:
    return run(program, **SIZE)


def profile_pictures(profile: Profile, program: Callable[[Any], Any]) -> Iterator[tuple[Path, str]]:
    """The pictures of the page, by their paths."""
    beside = compare(_planned(program), profile, titles=[PLANNED, TITLE])
    yield from in_files("profile", draw(profile, chain=True))
    yield from in_files("profile_beside", beside)


def of_profile(profile: Profile, program: Callable[[Any], Any]) -> SimpleNamespace:
    """The figures of the page."""
    unit, planned = profile.unit, _planned(program)
    parts = time_parts(profile.events, profile.ranks, profile.time)
    chain = {word: unit.lasting(time) for time, word in profile.chain.parts}
    (waits, other), longest = next(iter(profile.waits.items()))
    simulated = time_parts(planned.events, planned.ranks, planned.time)
    assert profile.tick is not None
    return SimpleNamespace(
        time=unit.lasting(profile.time),
        tick=unit.lasting(profile.tick),
        idle=f"{round(100 * idle_of(parts))}%",
        alone=share_text(parts["communication"]),
        chain=chain,
        waits=f"Rank {waits} waits {unit.lasting(longest)} for rank {other}",
        simulated_idle=f"{round(100 * idle_of(simulated))}%",
    )
