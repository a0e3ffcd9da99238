"""A headless Chromium that shows HTML as a notebook's page would. ``make browser`` installs what it needs.

``python -m tests.browser`` says which one there is, or fails and says what is missing.
"""

import base64
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import Frame as Frame
    from playwright.sync_api import Page as Page
    from playwright.sync_api import Playwright
else:
    Frame = Page = Any  # where there is no browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""Where a Chromium is looked for on the PATH. The environment's CHROMIUM names another, and then only that is tried."""
NEEDED = ("playwright", "axe_playwright_python")

Scheme = Literal["light", "dark"]
Result = TypeVar("Result")

PAGE = """<!doctype html>
<html lang="en"{html}>
<head><meta charset="utf-8"><title>A notebook</title><style>body{{margin:0;{colors}}}</style></head>
<body{body}><main><h1>A notebook</h1>
<div>{content}</div>
</main></body></html>"""
"""A page without faults of its own, so that what axe-core finds is in the content."""
PAGE_COLORS = {"light": "background:#fff;color:#000", "dark": "background:#111;color:#fff"}

COLORS = """async png => {
    const image = new Image();
    image.src = "data:image/png;base64," + png;
    await image.decode();
    const {x, y, width, height} = (document.querySelector("main > div") ?? document.body).getBoundingClientRect();
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    return new Set(new Uint32Array(context.getImageData(x, y, width, height).data.buffer)).size;
}"""

BROKEN = """part => [...document.querySelectorAll(part)].flatMap(box => {
    const found = [], nodes = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
    while (nodes.nextNode())
        for (const word of nodes.currentNode.data.matchAll(/\\w+/g)) {
            const range = document.createRange();
            range.setStart(nodes.currentNode, word.index);
            range.setEnd(nodes.currentNode, word.index + word[0].length);
            const lines = [...range.getClientRects()];
            if (lines.length > 1 && lines.reduce((sum, one) => sum + one.width, 0) < box.clientWidth)
                found.push(word[0]);
        }
    return found;
})"""
"""The words that are broken though there is room for them in their boxes, which a CSS selector chooses."""


class NoBrowser(Exception):
    """There is no browser to look with; says why."""


@dataclass(frozen=True)
class Sight:
    """What was seen of a page.

    ``png``: a screenshot of its whole length; ``colors``: how many different ones the content has there;
    ``measured``: what the script returned; ``violations``: the rules of axe-core that are broken, each with its
    elements (it does not judge the contrast of letters in an SVG); ``passed``: those that hold for something on the
    page; ``requests``: what it wanted to load.
    """

    png: bytes
    colors: int
    measured: Any
    violations: dict[str, list[str]]
    passed: set[str]
    requests: list[str]


class Browser:
    """A headless Chromium, to be used in a ``with``. Raises NoBrowser where there is none.

    It is driven from a thread of its own: in the thread that drives it, Playwright keeps a loop running, and
    there no test could run a program of a learner.
    """

    def __init__(self) -> None:
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            raise NoBrowser(f"{' and '.join(missing)} not installed")
        self._thread = ThreadPoolExecutor(1)
        try:
            self._playwright, self._chromium, self.version = self._call(_start)
        except BaseException:
            self._thread.shutdown()
            raise

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._chromium.close)
        self._call(self._playwright.stop)
        self._thread.shutdown()

    def show(
        self,
        content: str,
        script: str = "() => null",
        scheme: Scheme = "light",
        theme: Scheme = "light",
        width: int = 900,
        html: str = "",
        body: str = "",
        judged: bool = True,
    ) -> "Sight":
        """Look at a piece of HTML in a page. Unless it is to be ``judged``, the script alone looks.

        ``script``: a JavaScript function to call in the page; ``scheme``: what the system prefers; ``theme``: how the
        page itself looks; ``html``, ``body``: attributes of these elements, by which a notebook tells its theme.
        """
        page = PAGE.format(
            html=html and f" {html}", body=body and f" {body}", colors=PAGE_COLORS[theme], content=content
        )
        return self._call(lambda: _look(self._chromium, page, script, scheme, width, judged))

    def page(self, page: str, script: str = "() => null", scheme: Scheme = "light", width: int = 900) -> "Sight":
        """Look at a page of its own."""
        return self._call(lambda: _look(self._chromium, page, script, scheme, width, judged=True))

    def visit(
        self,
        url: str,
        work: "Callable[[Page], Result]",
        width: int = 1280,
        height: int = 1000,
        scheme: Scheme = "light",
        scripts: bool = True,
    ) -> Result:
        """Go to an address, and do something there. ``scripts``: whether those of the page run."""

        def there() -> Result:
            page = self._chromium.new_page(
                viewport={"width": width, "height": height},
                reduced_motion="reduce",
                color_scheme=scheme,
                java_script_enabled=scripts,
            )
            page.set_default_timeout(60_000)
            try:
                page.goto(url)
                return work(page)
            finally:
                page.close()

        return self._call(there)

    def _call(self, work: Callable[[], Result]) -> Result:
        return self._thread.submit(work).result()


def _start() -> "tuple[Playwright, Chromium, str]":
    """The first Chromium that runs: one that is found may be a stub which asks to be installed."""
    from playwright.sync_api import Error, sync_playwright

    playwright = sync_playwright().start()
    failed = []
    for path in _places():
        try:
            chromium = playwright.chromium.launch(executable_path=path)
        except Error as error:
            failed.append(f"{path or 'that of Playwright'} ({error.message.splitlines()[0]})")
        else:
            return playwright, chromium, f"Chromium {chromium.version}, {path or 'that of Playwright'}"
    playwright.stop()
    raise NoBrowser(f"no Chromium that runs; tried {', '.join(failed)}")


def _places() -> Iterator[str | None]:
    """Paths of browsers, the most wanted first; None is the one that Playwright installs."""
    chosen = os.environ.get("CHROMIUM")
    if chosen:
        yield shutil.which(chosen) or chosen
    else:
        yield from filter(None, map(shutil.which, NAMES))
        yield None


def _look(chromium: "Chromium", html: str, script: str, scheme: Scheme, width: int, judged: bool) -> "Sight":
    page = chromium.new_page(
        color_scheme=scheme, viewport={"width": width, "height": 700}, offline=True, reduced_motion="reduce"
    )
    try:
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.set_content(html)
        png = page.screenshot(full_page=True) if judged else b""
        measured = page.evaluate(script)
        if not judged:
            return Sight(png, 0, measured, {}, set(), requests)
        violations, passed = axe(page)
        # last, since the image that is decoded there would count as a request
        wanted = list(requests)
        colors = int(page.evaluate(COLORS, base64.b64encode(png).decode()))  # the browser can read an image anyway
        return Sight(png, colors, measured, violations, passed, wanted)
    finally:
        page.close()


def axe(page: "Page", part: str = "html") -> tuple[dict[str, list[str]], set[str]]:
    """The rules of axe-core that are broken in a part of a page (a CSS selector), and those that hold."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    # Of what holds, an element each is enough: to name all of them takes three times as long as to look.
    found = page.evaluate("part => axe.run({include: [[part]]}, {resultTypes: ['violations']})", part)
    violations = {
        rule["id"]: [f"{node['html'][:200]} {node['failureSummary']}" for node in rule["nodes"]]
        for rule in found["violations"]
    }
    return violations, {rule["id"] for rule in found["passes"]}


def keep(png: bytes, name: str, folder: Path) -> None:
    """Write a screenshot where pytest keeps files, and where the environment's SCREENSHOTS says."""
    path = folder / f"{name}.png"
    path.write_bytes(png)
    if os.environ.get("SCREENSHOTS"):
        wanted = Path(os.environ["SCREENSHOTS"])
        wanted.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, wanted)


def rgb(color: str) -> str:
    """A color as a browser computes it.

    >>> rgb("#1a1d23")
    'rgb(26, 29, 35)'
    """
    return f"rgb({', '.join(str(int(color[at : at + 2], 16)) for at in (1, 3, 5))})"


if __name__ == "__main__":
    try:
        with Browser() as browser:
            print(f"Pictures are looked at with {browser.version}.")
    except NoBrowser as error:
        sys.exit(f"No browser for the tests: {error}.")
