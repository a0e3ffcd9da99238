"""What people see before they install anything: a page that shows the course, and the picture at the head of README.

`python -m solutions.build` writes them: puzzles/gallery.html, puzzles/hero-light.svg and puzzles/hero-dark.svg.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from drawing import Figure, compare, draw, play
from drawing.figure import placed
from drawing.svg import image, without_hover
from drawing.theme import ROLES, css
from lib import PuzzleError, Run
from lib.course.specs import Puzzle

from .figures import once
from .schedules import draw_family, draw_shared_legend
from .shown import evaluate, one_too_few

PAGE, LIGHT, DARK = "gallery.html", "hero-light.svg", "hero-dark.svg"
HERO = "pipeline", "gpipe"
"""The puzzles whose solutions the hero compares; below them is the program that has the star of the second."""
HERO_TITLES = ("one big batch", "GPipe", "interleaved stages")
SIZE = {"ranks": 4, "layers": 8, "batches": 8}
"""Of the run that the page plays, and of the one that fails."""
LARGE = 60_000
"""Bytes of a schedule at most: one that has more is drawn pixel by pixel."""


class Family(NamedTuple):
    """Puzzles whose schedules are drawn on one scale."""

    title: str
    words: str
    names: Sequence[str]


FAMILIES = (
    Family(
        "A pipeline",
        "Each GPU has some of the layers. What it costs is waiting, and each of these waits less.",
        ("pipeline", "gpipe", "one_f_one_b", "interleaved", "zero_bubble", "zbv", "dualpipe"),
    ),
    Family(
        "Data parallel",
        "Each GPU has a part of the batch. What it costs is memory, and then communication.",
        ("ddp", "wsdp", "fsdp", "zero1", "zero2", "prefetch", "lora"),
    ),
    Family(
        "One GPU",
        "What can be done before there is a second one: less in memory, for some more work.",
        ("basic", "grad_accum", "checkpointing", "offload"),
    ),
    Family(
        "Inside a layer",
        "All GPUs work on the same layer of the same micro-batch at the same time.",
        (
            "tensor_parallel",
            "sequence_parallel",
            "context_parallel",
            "ring_attention",
            "expert_parallel",
            "two_batch_overlap",
        ),
    ),
    Family(
        "Several nodes",
        "Inside a node links are fast, between nodes they are slow.",
        ("replica_fsdp", "hierarchical", "hpz", "buckets"),
    ),
    Family(
        "Several ways at once", "The GPUs are a mesh, and each axis has a use of its own.", ()
    ),
)
"""The families in the order of the page. The last one takes all puzzles that no other names."""
LINE = re.compile(r"\[[^\]]*\]\((p\d\d_\w+)\.ipynb\): ([^\n]*(?:\n#  +\S[^\n]*)*)")
"""A line of the overview: a link to a notebook, and a sentence, which may go on in the next line."""

TITLE = "LLM training puzzles"
HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root{{color-scheme:light dark;--page:#fff;--ink:{ink[0]};--mute:{mute[0]};--line:#dfe3e9;--soft:#f4f6f9;--link:#0b57b0;--on:#fff;--bad:#b3261e;--good:#17683f}}
body{{margin:0 auto;max-width:1012px;padding:1rem;box-sizing:border-box;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:break-word}}
h1{{font-size:1.9rem;line-height:1.2;margin:.5rem 0}}h2{{font-size:1.4rem;line-height:1.25;margin:3rem 0 .25rem}}
h3{{font-size:1.1rem;margin:2rem 0 0}}h4{{font-size:1rem;margin:1.1rem 0 .1rem}}p{{margin:.25rem 0 .6rem;max-width:46rem}}a{{color:var(--link)}}
.figures{{color:var(--mute);font-variant-numeric:tabular-nums}}
.begin{{display:flex;flex-wrap:wrap;gap:.6rem;margin:1rem 0}}
.begin a{{padding:.45rem 1rem;border:1px solid var(--link);border-radius:8px;text-decoration:none;font-weight:600}}
.begin a:first-child{{background:var(--link);color:var(--on)}}
svg{{max-width:100%;height:auto}}
.key{{position:sticky;top:0;z-index:1;background:var(--page);padding:.3rem 0;border-bottom:1px solid var(--line)}}
iframe{{width:100%;height:700px;border:0;display:block}}.still{{display:none}}.still img{{max-width:100%}}
pre{{background:var(--soft);border:1px solid var(--line);border-radius:8px;padding:.6rem .8rem;overflow-x:auto;
font:13px/1.5 ui-monospace,Consolas,monospace;white-space:pre-wrap}}
del{{color:var(--bad);text-decoration:none;display:block}}ins{{color:var(--good);text-decoration:none;display:block}}
.verdict{{border:1px solid var(--line);border-radius:8px;padding:.6rem .8rem;overflow-x:auto;font-size:14px}}
.one{{break-inside:avoid;scroll-margin-top:6.5rem}}
{colors}
@media(prefers-color-scheme:dark){{:root{{--page:#0d1015;--ink:{ink[1]};--mute:{mute[1]};--line:#2f3641;--soft:#16191f;--link:#7ab7ff;--on:#0d1015;--bad:#ff8a80;--good:#6fd6a0}}}}
@media(max-width:640px),(max-height:500px){{.key{{position:static}}}}
@media print{{:root{{color-scheme:light;--page:#fff;--ink:{ink[0]};--mute:{mute[0]};--line:#dfe3e9;--soft:#fff;--link:#0b57b0;--on:#fff;--bad:#b3261e;--good:#17683f}}
.key{{position:static}}iframe,.begin{{display:none}}.still{{display:block}}{printed}}}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p>You write one short Python function, such as <code>async def gpipe(model)</code>. A simulated machine of 1 to 1,000 GPUs
runs it, draws what each GPU does, and measures time and memory against a target. It says whether your function really trains
the model and, if it doesn't, what to change. Below are three answers to the same question: four GPUs, eight layers, one
batch. How long does a step take?</p>
{hero}
<nav class="begin" aria-label="where to go"><a href="#begin">Begin</a><a href="#run">Watch a run</a><a href="#fails">See one fail</a><a href="#verdict">Read a verdict</a><a href="#course">All {count} schedules</a></nav>
<h2 id="run">A run, step by step</h2>
<p>This program evaluates a model on four GPUs. Press Play, or step with the arrow keys. You see what each GPU does and
holds at every moment, and the line of the program that it is at. <em>Why now?</em> goes back along the chain of
operations that wait for each other.</p>
{player}
<h2 id="fails">A run that fails</h2>
<p>The first GPU leaves out the first micro-batch. Nothing is wrong with any single line, and at the end everybody waits.
The picture shows who waits for whom and since when, and the error says what to change.</p>
{failed}
<pre>{error}</pre>
<p>It is mended in one line:</p>
<pre>{fix}</pre>
<h2 id="verdict">A verdict</h2>
<p>A program is graded at the size of its puzzle and at others. It passes if the model is trained correctly, in time and
within memory. Then there is a star, which asks for a deeper idea. This is the verdict on the second program of the first picture:</p>
<div class="verdict" tabindex="0" role="region" aria-label="A verdict">{verdict}</div>
<section id="course">
<h2>The course</h2>
<p>{count} puzzles, from one GPU to GPT-3 on a thousand, and {repairs} programs to be repaired. Here are the schedules of our
solutions. Each row is a GPU (a <em>rank</em>), time goes to the right, and below the rows is the memory of the rank with
the highest peak. Schedules that stand together have one scale for time and one for memory, so that they can be compared.</p>
<div class="key">{key}</div>
{families}
</section>
<h2 id="begin">Begin</h2>
<p>You need git, make and Python 3.11 or later, and no GPU. The first line makes the environment, and opens the overview in
JupyterLab.</p>
<pre>{install}</pre>
{elsewhere}
</main>
</body>
</html>
"""
PLAYER = """<iframe srcdoc="{page}" title="A run, step by step" loading="lazy"></iframe>
<div class="still">{still}</div>"""
SCHEDULE = """<div class="one" id="{name}">
<h4>{number}. {title}</h4>
<p>{words} <span class="figures">{ranks}: {time}, {memory} at its peak.</span></p>
{picture}
</div>"""

Play = Callable[[Puzzle], Run]


def products(
    puzzles: Sequence[Puzzle],
    played: Play,
    compared: Sequence[tuple[str, Run]],
    report: Callable[[Puzzle], str],
    solutions: Path,
    where: str = "",
) -> Iterator[tuple[str, str]]:
    """The names of the files in puzzles/, and their texts. ``played``: gives the run of a puzzle's solution;
    ``compared``: the runs of the hero, with their titles; ``report``: the verdict on a solution that is graded, as HTML;
    ``where``: the address of the project, if it has one."""
    course = [puzzle for puzzle in puzzles if not puzzle.repair]
    if not compared:
        return
    runs = {puzzle.name: played(puzzle) for puzzle in course}
    graded = next(puzzle for puzzle in course if puzzle.name == HERO[-1])
    hero = compare(*(done for _, done in compared), titles=[title for title, _ in compared])
    for name, dark in ((LIGHT, False), (DARK, True)):
        yield name, fixed(hero, dark) + "\n"
    said = sentences(solutions)
    failed = _failed()
    assert failed.run is not None
    shown = play(evaluated())
    yield (
        PAGE,
        HTML.format(
            title=TITLE,
            hero=_picture(hero),
            count=len(course),
            repairs=sum(puzzle.repair for puzzle in puzzles),
            player=PLAYER.format(
                page=escape(shown.page), still=draw(evaluated(), static=True)._repr_html_()
            ),
            failed=_picture(draw(failed.run, memory=False)),
            error=escape(str(failed)),
            fix=_fix(),
            verdict=report(graded),
            key=_picture(draw_shared_legend([*runs.values()])),
            families="\n".join(_families(course, runs, said)),
            install=escape(
                f"git clone {where}\ncd {where.rpartition('/')[2]}\nmake lab"
                if where
                else "make lab"
            ),
            elsewhere=f'<p>Or read about <a href="{escape(where)}">the project</a>.</p>'
            if where
            else "",
            colors=css(),
            printed="".join(
                f".ltp .f-{role}{{fill:{light}!important}}.ltp .s-{role}{{stroke:{light}!important}}"
                for role, (light, _) in ROLES.items()
            ),
            ink=ROLES["ink"],
            mute=ROLES["mute"],
        ),
    )


def evaluated() -> Run:
    """The run that the page plays."""
    return once(evaluate, **SIZE)


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


def families(puzzles: Sequence[Puzzle]) -> Iterator[tuple[Family, list[Puzzle]]]:
    """The families and their puzzles, each in one."""
    named = {name for family in FAMILIES for name in family.names}
    known = {puzzle.name: puzzle for puzzle in puzzles}
    for family in FAMILIES:
        names = family.names or [name for name in known if name not in named]
        if own := [known[name] for name in names if name in known]:
            yield family, own


def _families(
    puzzles: Sequence[Puzzle], runs: Mapping[str, Run], said: Mapping[str, str]
) -> Iterator[str]:
    for family, own in families(puzzles):
        # Seconds and ticks have no scale in common.
        units = {
            puzzle.name: [runs[one.name] for one in own if one.unit is puzzle.unit]
            for puzzle in own
        }
        yield f"<h3>{family.title}</h3>\n<p>{family.words}</p>"
        for puzzle in own:
            yield _schedule(puzzle, runs[puzzle.name], units[puzzle.name], said[puzzle.name])


def _schedule(puzzle: Puzzle, run: Run, family: Sequence[Run], words: str) -> str:
    drawn = _picture(draw_family(run, family))
    if len(drawn) > LARGE:
        drawn = _picture(draw_family(run, family, rough=1))
    time, memory = puzzle.describe(run.time, run.memory)
    return SCHEDULE.format(
        name=puzzle.name,
        number=puzzle.number,
        title=escape(puzzle.title),
        words=_sentence(words),
        time=time,
        memory=memory,
        ranks=f"{run.ranks} rank{'s' * (run.ranks > 1)}",
        picture=drawn,
    )


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


def _sentence(words: str) -> str:
    """A line of the overview, which is Markdown, as a sentence of a page."""
    shown = re.sub(r"\*([^*]+)\*", r"<em>\1</em>", escape(words))
    return f"{shown[0].upper()}{shown[1:]}{'' if shown.endswith('.') else '.'}"


def _picture(figure: Figure) -> str:
    """A picture. Hover texts and colors of dark pages are left out: there are many pictures, and the page has the
    colors once."""
    return placed(without_hover(figure.in_place()).replace(css(), ""))


def fixed(figure: Figure, dark: bool) -> str:
    """A picture in the colors of light pages, or of dark ones, whatever the system prefers: a page that shows it as an
    image says which. Without hover texts, which nobody can read in an image."""
    drawn = image(figure._body, figure.size, dark=False)
    colors = {light: other if dark else light for light, other in ROLES.values()}
    return re.sub(
        '"(#[0-9a-f]{6})"', lambda found: f'"{colors.get(found[1], found[1])}"', drawn
    )
