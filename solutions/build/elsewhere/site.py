"""The site: the gallery, the course in the browser behind a button, and the docs as pages.

    python -m solutions.build.elsewhere.site            build dist/site, for any server of static files
    python -m solutions.build.elsewhere.site --serve    and serve it on this machine

Takes what lite.py takes, and the extra ``site``. What is built needs no network.
"""

import argparse
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from mdit_py_plugins.anchors import anchors_plugin

from ..notebooks.address import in_colab, published
from ..pages.board import PAGE as BOARD
from ..pages.gallery import PAGE
from ..pages.gallery_page import SHARED, head
from ..sources.files import ROOT, BuildError
from . import lite
from .wheels import LiteError

PLAY = "play"
"""The folder of the course in the browser."""
FIRST = "index.ipynb"
"""The notebook that opens there."""
BUTTON = '<nav class="begin" aria-label="begin">', "</nav>"
"""Around the gallery's button."""
WAYS = {
    "README.md": "About the project",
    "docs/install.md": "Other ways to begin",
    "docs/pictures.md": "Pictures",
    "docs/teaching.md": "Teaching",
    "CHANGELOG.md": "What is new",
}
"""The pages that the front page names."""
LINK = re.compile(r'(?<=\s)(href|src|srcset)="([^"]*)"')
STYLE = """
table{border-collapse:collapse;display:block;overflow-x:auto;margin:.6rem 0}
th,td{border:1px solid var(--line);padding:.3rem .6rem;text-align:left;vertical-align:top}
code{font:.9em ui-monospace,Consolas,monospace}pre code{font:inherit}
img{max-width:100%}li{max-width:46rem}
"""
"""What pages of text have beyond the style of the gallery."""
TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
{head}
<link rel="stylesheet" href="{up}style.css">
</head>
<body>
<nav aria-label="where to go">
<a href="{up}{first}">Begin in the browser</a> ·
<a href="{up}index.html">All schedules</a> ·
<a href="{up}README.html">About</a>
</nav>
<main>
{text}</main>
</body>
</html>
"""


def site(root: Path) -> Path:
    """Build the site; where it is."""
    course = lite.site(root)
    made = root / "dist" / "site"
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(course, made / PLAY)
    write(root, made)
    return made


def write(root: Path, made: Path) -> None:
    """Write the pages and what they show."""
    for name, text in pages(root):
        place = made / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    for picture in (*(root / "puzzles").glob("*.svg"), root / "puzzles" / SHARED):
        shutil.copy(picture, made)


def pages(root: Path) -> Iterator[tuple[str, str]]:
    """The names of the pages, and their texts."""
    where = published(root)
    front = (root / "puzzles" / PAGE).read_text(encoding="utf-8")
    yield "index.html", _front(front, where)
    if (
        board := root / "puzzles" / BOARD
    ).exists():  # its puzzles open in the browser, and its gallery is the front page
        text = board.read_text(encoding="utf-8").replace(f'href="{PAGE}"', 'href="index.html"')
        yield BOARD, re.sub(r'(?<=")p\d\d_\w+\.ipynb(?=")', lambda found: played(found[0]), text)
    yield "style.css", front.partition("<style>")[2].partition("</style>")[0] + STYLE
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table").use(anchors_plugin, max_level=4)
    sources = [path.relative_to(root).as_posix() for path in [*root.glob("*.md"), *root.glob("docs/*.md")]]
    for name in sources:
        text = (root / name).read_text(encoding="utf-8")
        title = next(line for line in text.splitlines() if line.startswith("# "))
        yield (
            page_of(name),
            TEMPLATE.format(
                title=escape(title[2:]),
                head=head(where),
                up="../" * name.count("/"),
                first=played(FIRST),
                text=_with_links(markdown.render(text), name, sources, where),
            ),
        )


def page_of(source: str) -> str:
    """The page of a text."""
    return source.removesuffix(".md") + ".html"


def played(notebook: str) -> str:
    """Where a notebook is open in the browser, by itself: beside a list of files a phone has no room for it."""
    return f"{PLAY}/notebooks/index.html?path={notebook}"


def _front(page: str, where: str) -> str:
    """The gallery whose button opens the course in the browser, and with other ways at its end."""
    top, button, rest = page.partition(BUTTON[0])
    _, closed, rest = rest.partition(BUTTON[1])
    body, end, tail = rest.rpartition("</main>")
    if not closed or not end:
        raise LiteError(f"{PAGE} has no button ({BUTTON[0]}), or no end")
    begin = f'<a href="{played(FIRST)}">Begin in the browser</a>'
    colab = in_colab(where, FIRST)
    ways = [f'<a href="{escape(colab)}">Open in Colab</a>'] if colab else []
    ways += [f'<a href="{page_of(name)}">{words}</a>' for name, words in WAYS.items()]
    also = f"<p>{begin}: nothing has to be installed, and Python runs in the page.</p>\n<p>{' · '.join(ways)}</p>\n"
    live = f'<iframe src="{BOARD}#memory" title="The board" loading="lazy"></iframe>\n'
    closed += f'\n<p>Or begin here: move boxes until no bar is red. <a href="{BOARD}">More of the board</a></p>\n{live}'
    return f"{top}{button}{begin}{closed}{body}{also}{end}{tail}"


def _with_links(text: str, name: str, sources: list[str], where: str) -> str:
    """A page whose links lead to pages of this site. What the site does not have is in the
    repository, if that has an address."""

    def leads(found: re.Match[str]) -> str:
        link, mark, anchor = found[2].partition("#")
        if not link or re.match("[a-z]+:", link):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
        folder, _, file = path.rpartition("/")
        if path in sources:
            to = page_of(path)
        elif folder == "puzzles" and file.endswith(".ipynb"):
            to = played(file)
        elif folder == "puzzles":
            to = "index.html" if file == PAGE else file
        elif where:
            return f'{found[1]}="{escape(where)}/blob/main/{path}"'
        else:
            return ""
        return f'{found[1]}="{"../" * name.count("/")}{to}{mark}{anchor}"'

    return LINK.sub(leads, text)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Build, and serve if asked to; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m solutions.build.elsewhere.site",
        description="The gallery, the course in the browser, and the docs.",
    )
    parser.add_argument("--serve", metavar="PORT", nargs="?", type=int, const=8000, help="serve it here (8000)")
    options = parser.parse_args(arguments)
    try:
        made = site(root)
    except (LiteError, BuildError) as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    print(f"The site is in {made.relative_to(root)}. Any server of static files will do.")
    if options.serve is not None:
        lite.serve(made, options.serve)
    return 0


if __name__ == "__main__":
    sys.exit(main())
