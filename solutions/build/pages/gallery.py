"""What people see before they install anything: a page that shows the course, and the race at its head and README's.

`python -m solutions.build` writes them: puzzles/gallery.html and puzzles/race.svg.
"""

import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from tempfile import TemporaryDirectory
from unittest.mock import patch

from drawing import Figure, draw, play
from drawing.charts.verdict import show_verdict
from drawing.ink.figure import placed
from drawing.ink.svg import image, without_hover
from drawing.ink.theme import ROLES, css
from lib import PuzzleError, Run, run
from lib.course.specs import Puzzle, cost_named
from lib.grading.judge import judge
from lib.grading.notebook import ShownVerdict
from lib.grading.progress import FOLDER, Progress

from ..pictures import race
from ..pictures.schedules import draw_schedule, draw_shared_legend
from ..runs.course import Course
from ..runs.programs import once
from ..sources.overview import sentences
from .families import Family, families
from .gallery_page import HTML, LEAD, PLAYER, SCHEDULE, TITLE, head
from .shown import evaluate, one_too_few

PAGE, RACE, SLIM, GRADED = "gallery.html", f"{race.NAME}.svg", f"{race.NAME}_narrow.svg", "gpipe"
"""The page, the picture, and the puzzle whose verdict is shown."""
SIZE = {"ranks": 4, "layers": 8, "batches": 8}
"""Of the run that the page plays, and of the one that fails."""
LARGE, LARGE_SLIM, ROUGH = 45_000, 7_000, 2
"""Bytes of a schedule at most, and of the one for narrow places: one that has more is drawn pixel by pixel, or by so
many pixels."""


def gallery(course: Course, where: str = "") -> Iterator[tuple[str, str]]:
    """The names of the files in puzzles/, and their texts; none where the puzzles of the first picture are missing.
    ``where``: the address of the project, if it has one."""
    if not race.can_race(course.folder):
        return
    first = race.picture(course.folder)
    for name, one in {RACE: first, SLIM: first.narrow or first}.items():
        yield name, image(one._body, one.size) + "\n"
    drawn = {"race": _picture(first), **_colors(), **_runs(), **_course(course), **_begin(where)}
    yield PAGE, HTML.format(title=TITLE, lead=LEAD, head=head(where), **drawn)


def _colors() -> dict[str, object]:
    printed = (
        f".ltp .f-{role}{{fill:{light}!important}}.ltp .s-{role}{{stroke:{light}!important}}"
        for role, (light, _) in ROLES.items()
    )
    return {"colors": css(), "printed": "".join(printed), "ink": ROLES["ink"], "mute": ROLES["mute"]}


def _runs() -> dict[str, str]:
    """The run that is played, and the one that fails."""
    done, failed = once(evaluate, **SIZE), _failed()
    assert failed.run is not None
    still = draw(done, static=True)
    still.narrow = None  # it is printed only: on a page it is the player that is seen
    return {
        "player": PLAYER.format(page=escape(play(done).page), still=still._repr_html_()),
        "failed": _picture(draw(failed.run, memory=False)),
        "error": escape(str(failed)),
        "fix": _fix(),
    }


def _course(course: Course) -> dict[str, object]:
    """All schedules, by families, and a verdict."""
    puzzles = [puzzle for puzzle in course.puzzles if not puzzle.repair]
    shown = [*families(course, puzzles)]
    graded = next(puzzle for puzzle in puzzles if puzzle.name == GRADED)
    moved = course.played(graded)
    return {
        "count": len(puzzles),
        "repairs": len(course.puzzles) - len(puzzles),
        "verdict": _verdict(course, graded),
        "board": _picture(draw_schedule(moved, 0, [moved])),
        "key": _picture(draw_shared_legend([done for _, own in shown for _, done in own])),
        "families": "\n".join(_families(shown, sentences(course.folder))),
    }


def _begin(where: str) -> dict[str, str]:
    if not where:
        return {"install": "make lab", "elsewhere": ""}
    return {
        "install": escape(f"git clone {where}\ncd {where.rpartition('/')[2]}\nmake lab"),
        "elsewhere": f'<p>Or read about <a href="{escape(where)}">the project</a>.</p>',
    }


def _verdict(course: Course, puzzle: Puzzle) -> str:
    """What a notebook shows of the verdict on a puzzle's solution, as HTML; no progress but this is looked at."""
    solution, cost = course.solution(puzzle), cost_named(puzzle.cost)
    verdict = judge(puzzle, lambda size: run(solution, **size, cost=cost))
    with TemporaryDirectory() as folder, patch.dict(os.environ, {FOLDER: folder}):
        Progress().record(verdict)
        return show_verdict(ShownVerdict(verdict, course.played(puzzle)))


def _failed() -> PuzzleError:
    try:
        once(one_too_few, **SIZE)
    except PuzzleError as error:
        return error
    raise AssertionError("the program that is to fail does not fail")


def _fix() -> str:
    """The lines in which the two programs differ, with the loop that they begin."""
    wrong, right = (inspect.getsource(one).splitlines()[2:] for one in (one_too_few, evaluate))
    [at] = [at for at, (old, new) in enumerate(zip(wrong, right, strict=True)) if old != new]
    below = escape(right[at + 1])
    return f"<del>-{escape(wrong[at])}</del><ins>+{escape(right[at])}</ins> {below}"


def _families(shown: Sequence[tuple[Family, list[tuple[Puzzle, Run]]]], said: Mapping[str, str]) -> Iterator[str]:
    for family, own in shown:
        together = [done for puzzle, done in own if puzzle.name in family.names and puzzle.name not in family.alone]
        yield f"<h3>{family.title}</h3>\n<p>{family.words} {family.sentence()}</p>"
        for puzzle, done in own:
            apart = APART * (bool(family.names) and puzzle.name in family.apart) + ALONE * (puzzle.name in family.alone)
            yield _schedule(puzzle, done, together if done in together else [done], said[puzzle.name], apart)


APART, ALONE = (
    " This one has a model and prices of its own.",
    " Its picture has a scale of its own: it takes far longer.",
)


def _schedule(puzzle: Puzzle, run: Run, family: Sequence[Run], words: str, apart: str) -> str:
    drawn = draw_schedule(run, 0, family)
    if len(without_hover(drawn._body)) > LARGE:
        drawn = draw_schedule(run, 1, family)
    if drawn.narrow is not None and len(without_hover(drawn.narrow._body)) > LARGE_SLIM:
        drawn.narrow = draw_schedule(run, ROUGH, family).narrow
    time, memory = puzzle.describe(run.time, run.memory)
    return SCHEDULE.format(
        name=puzzle.name,
        number=puzzle.number,
        title=escape(puzzle.title),
        words=_sentence(words) + apart,
        time=time,
        memory=memory,
        ranks=f"{run.ranks} rank{'s' * (run.ranks > 1)}",
        picture=_picture(drawn),
    )


def _sentence(words: str) -> str:
    """A line of the overview, which is Markdown, as a sentence of a page."""
    shown = re.sub(r"\*([^*]+)\*", r"<em>\1</em>", escape(words))
    return f"{shown[0].upper()}{shown[1:]}{'' if shown.endswith(('.', '?', '!')) else '.'}"


def _picture(figure: Figure) -> str:
    """A picture. Hover texts and colors of dark pages are left out: there are many pictures, and the page has the
    colors once."""
    return placed(without_hover(figure.in_place()).replace(css(), ""))
