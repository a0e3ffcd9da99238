"""The page of the gallery, with places for what the build draws; and the head that all pages have."""

from html import escape
from urllib.parse import quote

from ..notebooks.address import site_of

TITLE = "LLM training puzzles"
LEAD = "How do many GPUs train one language model together? Write it yourself, in short Python functions: a simulated machine runs them, draws what each GPU does, and says whether the model is trained."
SHARED = "race.png"
"""The picture that other sites show beside a link."""
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#16191f"/>'
    '<path stroke="#4a90d9" stroke-width="3" d="M2 4h6M4 8h5M6 12h4"/>'
    '<path stroke="#d5702c" stroke-width="3" d="M11 4h3M9 8h4M10 12h2"/></svg>'
)


def head(where: str) -> str:
    """What a page says of itself to browsers and to other sites. ``where``: the address of the project, if it has one:
    other sites take only whole addresses of pictures."""
    said = {"og:title": TITLE, "og:description": LEAD, "og:image": site_of(where) + SHARED, "og:type": "website"}
    metas = "".join(f'<meta property="{name}" content="{escape(text)}">\n' for name, text in said.items())
    return (
        f'<meta name="description" content="{escape(LEAD)}">\n{metas}'
        f'<meta name="twitter:card" content="summary_large_image">\n'
        f'<link rel="icon" href="data:image/svg+xml,{quote(ICON)}">'
    )


HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
{head}
<style>
:root{{color-scheme:light dark;--page:#fff;--ink:{ink[0]};--mute:{mute[0]};--line:#dfe3e9;--soft:#f4f6f9;--link:#0b57b0;--on:#fff;--bad:#b3261e;--good:#17683f}}
body{{margin:0 auto;max-width:1012px;padding:1rem;box-sizing:border-box;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:break-word}}
h1{{font-size:1.9rem;line-height:1.2;margin:.5rem 0}}h2{{font-size:1.4rem;line-height:1.25;margin:3rem 0 .25rem}}
h3{{font-size:1.1rem;margin:2rem 0 0}}h4{{font-size:1rem;margin:1.1rem 0 .1rem}}p{{margin:.25rem 0 .6rem;max-width:46rem}}a{{color:var(--link)}}
.figures{{color:var(--mute);font-variant-numeric:tabular-nums}}
.begin{{display:flex;flex-wrap:wrap;gap:.6rem;margin:1rem 0}}
.begin a{{padding:.5rem 1.3rem;border-radius:8px;text-decoration:none;font-weight:600;background:var(--link);color:var(--on)}}
.lead{{font-size:1.1rem}}
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
<p class="lead">{lead}</p>
<nav class="begin" aria-label="begin"><a href="#begin">Begin</a></nav>
{race}
<p>Seven answers to one question: four GPUs, eight layers, eight micro-batches, how long does a step take? They are among
the {count} puzzles. Below, you can <a href="#run">watch a run</a>, <a href="#fails">see one fail</a>,
<a href="#verdict">read a verdict</a>, and look at <a href="#course">all {count} schedules</a>.</p>
<h2 id="run">A run, step by step</h2>
<p>This program evaluates a model on four GPUs. Press Play, or step with the arrow keys. You see what each GPU does and
holds at every moment, and the line of the program that it is at. <em>Why now?</em> goes back along the chain of
operations that wait for each other.</p>
{player}
<h2 id="board">A schedule, moved by hand</h2>
<p>On <a href="board.html">the board</a> you move the boxes of a schedule, and see at once what that does to time, to idle
time and to memory. Its levels lead from the first pipeline to orders that nobody has found yet.</p>
<a href="board.html" aria-label="The board">{board}</a>
<h2 id="fails">A run that fails</h2>
<p>The first GPU leaves out the first micro-batch. Nothing is wrong with any single line, and at the end everybody waits.
The picture shows who waits for whom and since when, and the error says what to change.</p>
{failed}
<pre>{error}</pre>
<p>It is mended in one line:</p>
<pre>{fix}</pre>
<h2 id="verdict">A verdict</h2>
<p>A program is graded at the size of its puzzle and at others. It passes if the model is trained correctly, in time and
within memory. Then there is a star, which asks for a deeper idea. This is the verdict on GPipe, the first program of the race:</p>
<div class="verdict" tabindex="0" role="region" aria-label="A verdict">{verdict}</div>
<section id="course">
<h2>The course</h2>
<p>{count} puzzles, from one GPU to GPT-3 on a thousand, and {repairs} programs to be repaired. Here are the schedules of our
solutions. Each row is a GPU (a <em>rank</em>), time goes to the right, and below the rows is the memory of the rank with
the highest peak. Where schedules of one model and one machine stand together, they have one scale for time and one for
memory.</p>
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
