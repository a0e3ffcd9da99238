"""A page that plays a schedule: what each rank does and stores at every moment, and its line of code."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from lib import Cost, Run
from lib.basics.arguments import describe
from lib.basics.errors import PuzzleError
from lib.basics.folders import BLANKS
from lib.basics.units import Elements
from lib.record.training import BACKWARD

from ..ink.figure import Figure, write
from ..ink.figure import page as page_of
from ..ink.svg import escape, inside, without_hover
from ..ink.texts import ranges
from ..ink.trace import Trace, trace_of
from ..schedule.layout import Row, rows_of
from ..schedule.picture import LARGEST, STILL, draw, picture_for_player, small_enough
from ..small.holds import contents_of, moving
from .playback import failed_ranks, places, playback

TEMPLATE = Path(__file__).with_name("player.html")
OPERATIONS, PARTS = 20_000, 1_500
"""The largest number of operations that a page can play, and of what it can show of what GPUs hold."""
STRIP, HEIGHT = 48.0, 688
"""In pixels: the height of the memory of the chosen rank, and of the page until the page itself says how high it is."""
ROOM = 40_000
"""The least room in bytes that a page leaves for its own picture."""


class Player:
    """A page that plays a schedule. It shows itself in a notebook, and ``save`` writes it as one file.

    ``instead`` draws the picture that is shown where a page removes players, and where there is nothing to play.
    """

    def __init__(self, title: str, page: str, instead: Callable[[], Figure], plays: bool = True) -> None:
        self.title, self.page, self._instead, self.plays = title, page, instead, plays

    def __repr__(self) -> str:
        return f"player of {self.title}: shows itself in a notebook; save('{self.title}.html') for a browser"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page: one ``.html`` file that needs nothing else. Raise PuzzleError if it cannot be written."""
        write(path, {".html": lambda: self.page})

    def _repr_html_(self) -> str:
        if not self.plays:
            return self._instead()._repr_html_()
        frame, still = escape(self.page), self._instead()._repr_html_()
        size = len(frame) + len(still)
        if size > LARGEST:
            words = f"This player takes {size / 1e6:.1f} MB, too much for a notebook. {_FIX}"
            return f"<div><p>{escape(words)}</p>{still}</div>"
        how = f"width:100%;max-width:1100px;height:{HEIGHT}px;border:0"
        title = escape(f"player of {self.title}")
        # Who takes frames out, GitHub or a notebook that is not trusted, takes style sheets out as well: so this one
        # hides the picture exactly where the player is.
        inside = f"A player was here, and this page takes players out. Run the cell again, or: {_FIX}"
        return (
            f'{_SWAP}<div class="ltp-still">{still}<p>{inside}</p></div>'
            f'<iframe class="ltp-player" srcdoc="{frame}" title="{title}" style="{how}" loading="lazy"></iframe>'
        )


_SWAP = "<style>.ltp-still:has(+iframe.ltp-player){display:none!important}</style>"
_FIX = "play(run).save('player.html') writes a page to open in a browser."


def play(
    source: object,
    *,
    title: str | None = None,
    memory_target: Elements | float | None = None,
    ranks: Iterable[int] | None = None,
) -> Player:
    """A page that plays the schedule of a Run, or of models. You can watch it, step through it, or drag along the time.

    It shows the line of code that each rank is at, and what it has in memory; of up to 16 ranks layer by layer, for
    which the function is run once more (see ``holds``). The run of a failed program, an error's
    ``run``, begins at its end, and you go back from there. ``ranks``: those to play, where there are too many
    operations for all; without a wish some are chosen from all over the machine, and the page says which. Raises
    PuzzleError for anything that is not a run, for ranks that it has not, and for too many operations.
    """
    trace = trace_of(source, title, None, memory_target)
    if trace.profile is not None:
        expected = "draw(profile), or perfetto(profile).save('profile.json.gz')"
        raise PuzzleError(
            "a profile has neither code nor memory to step through", where="play", expected=expected, line=""
        )
    if not trace.attempted:
        nothing = draw(trace)
        return Player(trace.title, page_of(nothing.summary, nothing.svg(fluid=True)), lambda: nothing, plays=False)
    rows, left_out = _to_play(trace, ranks)
    data, space = playback(trace, rows, left_out), ""
    with suppress(PuzzleError):  # of many runs nobody can say what their ranks hold
        shown, data["parts"] = moving(contents_of(source))
        space = without_hover(inside(shown._body, shown.size)) if len(data["parts"]) <= PARTS else ""
    # A page whose data alone are too much for a notebook has its picture as fine as in a file.
    room = LARGEST - STILL - len(escape(_page(trace, "", "", space, data))) - 20 * len(rows) - 200
    most = room if room > ROOM else LARGEST
    drawn = partial(picture_for_player, trace)
    figure = small_enough(lambda rough: drawn(rough, STRIP), most, lambda figure: len(escape("".join(_drawn(figure)))))
    page = _page(trace, *_drawn(figure), space, data | {"box": places(figure, rows)})
    return Player(trace.title, page, lambda: small_enough(drawn))


def board(run: Run) -> Player:
    """The board, a page on which a pipeline's schedule is moved by hand, with the schedule of a run. Raises PuzzleError
    for a run that is no pipeline, for prices that the board does not have, and where the page is not installed."""
    price, blank = run.cost.price, BLANKS / "board.html"
    if not blank.exists():
        raise PuzzleError("the board is not here", where="board", expected="the installed course, or a clone of it")
    own = Cost(backward=run.cost.backward, send=run.cost.send, receive=run.cost.send)
    longer = {one.kind for one in run.events if one.stream == "message" and abs(one.length - price("send")) > 1e-9}
    if other := sorted(longer | {kind for kind in {one.kind for one in run.events} if price(kind) != own.price(kind)}):
        expected = "one node, and the prices of Cost(), but for backward= and for send= with an equal receive="
        raise PuzzleError("the board has other prices", where="board", got=", ".join(other), expected=expected)
    given = {"rows": run.schedule(), BACKWARD.kind: float(price(BACKWARD.kind)), "message": float(price("send"))}
    opened = f"<script>\nglobalThis.OPENED = {json.dumps(given | {'overlapped': float(run.cost.overlapped)})};"
    page = blank.read_text(encoding="utf-8").replace("<script>", opened, 1)
    return Player("the board", page, lambda: draw(run))


def _drawn(figure: Figure) -> tuple[str, str]:
    """Return the schedule and its legend."""
    assert figure.legend is not None
    return figure.svg(), figure.legend.svg()


def _page(trace: Trace, picture: str, legend: str, space: str, data: dict[str, Any]) -> str:
    script = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # no tag in it can end the script
    # The template has braces and dollars of its own: only these five are ours.
    parts = {"title": escape(trace.title), "picture": picture, "legend": legend, "space": space, "data": script}
    return re.sub(
        r"\$(title|picture|legend|space|data)\b", lambda found: parts[found[1]], TEMPLATE.read_text(encoding="utf-8")
    )


def _to_play(trace: Trace, ranks: Iterable[int] | None) -> tuple[list[Row], str]:
    """Return the rows to play, and a sentence on what is left out. Raise PuzzleError if no row can be played, or there
    are no such ranks."""
    rows = rows_of(trace)
    of_rank = {rank: place for place, row in enumerate(rows) for rank in row.ranks}
    named = [*ranks] if isinstance(ranks, Iterable) else []
    if ranks is not None and (not named or any(rank not in of_rank for rank in named)):
        expected = f"a list of ranks from 0 to {max(trace.by_rank)}"
        raise PuzzleError("no such ranks", where="play", expected=expected, got=describe(ranks))
    wanted = _evenly(trace, rows) if ranks is None else [*dict.fromkeys(of_rank[rank] for rank in named)]
    taken, left = list[int](), OPERATIONS
    for place in wanted:
        if (count := len(rows[place].operations)) <= left:
            taken.append(place)
            left -= count
    if not taken or (ranks is not None and len(taken) < len(wanted)):
        otherwise = "draw(run) draws any size" if ranks is None else "of fewer ranks"
        expected, got = f"at most {OPERATIONS:,}; {otherwise}", f"{sum(len(rows[at].operations) for at in wanted):,}"
        raise PuzzleError("too many operations to play", where="play", expected=expected, got=got)
    found = [rows[place] for place in sorted(taken)]
    if len(found) == len(rows):
        return found, ""
    own = [rank for row in found for rank in row.ranks]
    text = f"{len(own):,} of {len(trace.by_rank):,} ranks are played: {ranges(own)}."
    return found, f"{text} play(run, ranks=[...]) plays those that you name."


def _evenly(trace: Trace, rows: Sequence[Row]) -> list[int]:
    """Return the indices of all rows or, if there are too many, of a selection: where a run failed and who waits there,
    the peak of memory, the first, the last, and others at even distances."""
    counts = [len(row.operations) for row in rows]
    important = [*failed_ranks(trace), trace.peak.rank if trace.peak else None]
    found = [place for rank in important for place, row in enumerate(rows) if rank in row.ranks]
    chosen: list[int] = []
    for many in range(len(rows), 0, -1):
        spread = [round(step * (len(rows) - 1) / max(1, many - 1)) for step in range(many)]
        chosen = list(dict.fromkeys([*found, *spread]))
        if sum(counts[place] for place in chosen) <= OPERATIONS:
            break
    return chosen
