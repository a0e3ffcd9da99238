"""What people see before they install anything: a page with the schedule of every solution, and a sheet for README.

`python -m solutions.build` writes them: puzzles/gallery.html, puzzles/gallery-light.svg and puzzles/gallery-dark.svg.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from drawing import Figure
from drawing.svg import without_hover
from drawing.theme import ROLES, css
from lib import Run
from lib.course.specs import Puzzle

from .schedules import Piece, draw_poster, draw_schedule, draw_shared_legend

PAGE, LIGHT, DARK = "gallery.html", "gallery-light.svg", "gallery-dark.svg"
ON_THE_SHEET = ("ddp", "fsdp", "gpipe", "prefetch", "one_f_one_b", "zero_bubble")
"""The puzzles whose schedules README shows."""
LARGE = 70_000
"""Bytes of a schedule at most: one that has more is drawn pixel by pixel."""
STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
LINE = re.compile(r"\[[^\]]*\]\((p\d\d_\w+)\.ipynb\): ([^\n]*(?:\n#  +\S[^\n]*)*)")
"""A line of the overview: a link to a notebook, and a sentence, which may go on in the next line."""

TITLE = "LLM training puzzles: a gallery"
INTRO = (
    "These are the schedules of our solutions: each row is a GPU (a <em>rank</em>), time goes to the right, and below the rows is the "
    "memory of the rank whose peak is the highest. In the course you write the short programs that make them. If you would rather find "
    'them yourself, look at one or two, and begin with <a href="index.ipynb">the overview</a>.'
)
REPAIRED = "What is wrong here?"
REPAIRS = (
    'Short programs with one mistake each, in <a href="repairs.ipynb">a notebook of their own</a>, drawn here as they are once they have '
    "been repaired."
)
HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root{{color-scheme:light dark;--page:#fff;--ink:{ink[0]};--mute:{mute[0]};--link:#0b57b0}}
body{{margin:0 auto;max-width:1012px;padding:1rem;box-sizing:border-box;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:break-word}}
h1{{font-size:1.6rem;line-height:1.25;margin:.5rem 0}}h2{{font-size:1.25rem;margin:2.5rem 0 .25rem}}
h3{{font-size:1.05rem;margin:1.75rem 0 0}}p{{margin:.25rem 0 .5rem}}a{{color:var(--link)}}
.figures{{color:var(--mute);font-variant-numeric:tabular-nums}}
.wide{{overflow-x:auto}}.wide svg{{display:block;width:100%;min-width:680px;height:auto}}
section{{break-inside:avoid}}
{colors}
@media(prefers-color-scheme:dark){{:root{{--page:#0d1015;--ink:{ink[1]};--mute:{mute[1]};--link:#7ab7ff}}}}
@media print{{:root{{color-scheme:light;--page:#fff;--ink:{ink[0]};--mute:{mute[0]};--link:#0b57b0}}
.wide{{overflow:visible}}.wide svg{{min-width:0!important}}{printed}}}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p>{intro}</p>
{key}
<h2>The course</h2>
{course}
<h2>{repaired}</h2>
<p>{repairs}</p>
{mended}
</main>
</body>
</html>
"""
SECTION = """<section id="{name}">
<h3>{number}. <a href="{file}.ipynb">{title}</a></h3>
<p>{words} <span class="figures">{time}, {memory} at its peak, {ranks}.</span></p>
{picture}
</section>"""

Play = Callable[[Puzzle], Run]


def products(
    puzzles: Sequence[Puzzle], played: Play, solutions: Path
) -> Iterator[tuple[str, str]]:
    """The names of the files in puzzles/, and their texts. ``played``: gives the run of a puzzle's solution."""
    runs = {puzzle.name: played(puzzle) for puzzle in puzzles}
    said = sentences(solutions)
    yield PAGE, page(puzzles, runs, said)
    sheet = [
        Piece(f"{puzzle.number}. {puzzle.title}", said.get(puzzle.name, ""), runs[puzzle.name])
        for puzzle in puzzles
        if puzzle.name in ON_THE_SHEET
    ]
    if sheet:
        words = "Each row is a GPU, time goes to the right. You write the programs that make these schedules."
        drawn = draw_poster(sheet, "Who computes what, and when", words)
        for name, dark in ((LIGHT, False), (DARK, True)):
            yield name, fixed(drawn, dark) + "\n"


def sentences(solutions: Path) -> dict[str, str]:
    """A sentence for each puzzle, by its name: from the overview, or of a repair the docstring of its function."""
    overview = (solutions / "index.py").read_text(encoding="utf-8")
    found = {
        file.partition("_")[2]: " ".join(words.replace("\n#", " ").split())
        for file, words in LINE.findall(overview)
    }
    repairs = solutions / "repairs.py"
    if repairs.exists():
        for node in ast.walk(ast.parse(repairs.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                words = (ast.get_docstring(node) or "").partition("\n")[0]
                found.setdefault(node.name, words)
    return found


def page(puzzles: Sequence[Puzzle], runs: Mapping[str, Run], said: Mapping[str, str]) -> str:
    """The gallery as a page that needs nothing else."""
    sections = {
        puzzle.name: _section(puzzle, runs[puzzle.name], said[puzzle.name])
        for puzzle in puzzles
    }
    return HTML.format(
        title=TITLE,
        intro=INTRO,
        key=_picture(draw_shared_legend(list(runs.values()))),
        course="\n".join(sections[puzzle.name] for puzzle in puzzles if not puzzle.repair),
        repaired=REPAIRED,
        repairs=REPAIRS,
        mended="\n".join(sections[puzzle.name] for puzzle in puzzles if puzzle.repair),
        colors=css(),
        printed="".join(
            f".ltp .f-{role}{{fill:{light}!important}}.ltp .s-{role}{{stroke:{light}!important}}"
            for role, (light, _) in ROLES.items()
        ),
        ink=ROLES["ink"],
        mute=ROLES["mute"],
    )


def _section(puzzle: Puzzle, run: Run, words: str) -> str:
    drawn = _picture(draw_schedule(run))
    if len(drawn) > LARGE:
        drawn = _picture(draw_schedule(run, rough=1))
    time, memory = puzzle.describe(run.time, run.memory)
    ranks = f"{run.ranks} rank{'s' * (run.ranks > 1)}"
    return SECTION.format(
        name=puzzle.name,
        number=puzzle.number,
        file=puzzle.file,
        title=escape(puzzle.title),
        words=_sentence(words),
        time=time,
        memory=memory,
        ranks=ranks,
        picture=drawn,
    )


def _sentence(words: str) -> str:
    """A line of the overview, which is Markdown, as a sentence of a page."""
    shown = re.sub(r"\*([^*]+)\*", r"<em>\1</em>", escape(words))
    return f"{shown[0].upper()}{shown[1:]}{'' if shown.endswith('.') else '.'}"


def _picture(figure: Figure) -> str:
    """A picture that scrolls in its own box where the page is narrow. Hover texts and styles are left out: there are
    many pictures, and the page has the styles once."""
    drawn = STYLE.sub("", without_hover(figure.svg(fluid=True)))
    return f'<div class="wide" tabindex="0" role="region" aria-label="{escape(figure.title)}">{drawn}</div>'


def fixed(figure: Figure, dark: bool) -> str:
    """A picture in the colors of light pages, or of dark ones, whatever the system prefers: a page that shows it as an
    image says which. Without hover texts, which nobody can read in an image."""
    drawn = re.sub(r" class=\"[^\"]*\"", "", STYLE.sub("", without_hover(figure.svg())))
    colors = {light: other if dark else light for light, other in ROLES.values()}
    return re.sub(
        '"(#[0-9a-f]{6})"', lambda found: f'"{colors.get(found[1], found[1])}"', drawn
    )
