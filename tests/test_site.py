"""The site: all of its links lead somewhere, and it is read in the dark and on a phone."""

import shutil
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from solutions.build.elsewhere import site
from solutions.build.elsewhere.wheels import LiteError
from solutions.build.pages import gallery
from solutions.build.sources.files import ROOT
from tests.browser import Browser, Scheme, axe, keep


class Links(HTMLParser):
    """What a page leads to and shows, and the places in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.to: list[str] = []
        self.places: set[str] = set()
        self.words = ""
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.to += [given[name] or "" for name in ("href", "src", "srcset") if name in given]
        self.places |= {given[name] or "" for name in ("id",) if name in given}

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, and of the course in the browser what they lead to."""
    folder = tmp_path_factory.mktemp("site")
    files = folder / site.PLAY / "files"
    files.mkdir(parents=True)
    for notebook in (ROOT / "puzzles").glob("*.ipynb"):
        shutil.copy(notebook, files)
    (folder / site.PLAY / "notebooks").mkdir()
    (folder / site.PLAY / "notebooks" / "index.html").touch()
    site.write(ROOT, folder)
    return folder


def broken(folder: Path) -> Iterator[str]:
    """The links of pages that lead nowhere, each with its page."""
    pages = {page: Links(page) for page in folder.rglob("*.html") if site.PLAY not in page.relative_to(folder).parts}
    for page, links in pages.items():
        for link in links.to:
            to = urllib.parse.urlsplit(link)
            if to.scheme or to.netloc:
                continue
            target = (page.parent / to.path).resolve() if to.path else page
            notebook = urllib.parse.parse_qs(to.query).get("path", [])
            files = [target, *(folder / site.PLAY / "files" / name for name in notebook)]
            known = pages[target].places if target in pages else set()
            if not all(file.is_file() for file in files) or (
                to.fragment and to.fragment not in known and target.stem != "board"
            ):
                yield f"{page.relative_to(folder)}: {link}"


def test_every_link_leads_to_a_file_and_a_place_in_it(made: Path) -> None:
    assert list(broken(made)) == []
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    assert len([*made.glob("*.html"), *made.glob("docs/*.html")]) == 2 + len(texts)


def test_a_link_that_leads_nowhere_is_found(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    shutil.copytree(made, folder)
    wrong = ["none.html", "README.html#none", "docs/", "play/notebooks/index.html?path=none.ipynb"]
    links = "".join(f'<a href="{link}">x</a>' for link in [*wrong, "README.html#credit"])
    (folder / "more.html").write_text(links, encoding="utf-8")
    assert sorted(broken(folder)) == sorted(f"more.html: {link}" for link in wrong)


def test_the_built_site_has_no_broken_link() -> None:
    folder = ROOT / "dist" / "site"
    if not (folder / "index.html").exists():
        pytest.skip("NOT LOOKED AT: the built site, for there is none (make site builds one)")
    assert list(broken(folder)) == []


def test_the_front_page_is_the_gallery_with_a_button(made: Path) -> None:
    front = (made / "index.html").read_text(encoding="utf-8")
    button = front.partition(site.BUTTON[0])[2].partition(site.BUTTON[1])[0]
    assert button == '<a href="play/notebooks/index.html?path=index.ipynb">Begin in the browser</a>'
    whole = (ROOT / "puzzles" / gallery.PAGE).read_text(encoding="utf-8")
    assert all(line in front for line in whole.splitlines() if site.BUTTON[0] not in line)
    assert "colab" not in front.lower()


def test_pages_say_what_their_texts_say(made: Path) -> None:
    page = Links(made / "docs" / "install.html")
    command = 'uvx --from "llm-training-puzzles[lab]" llm-training-puzzles lab'
    assert "Ways to begin" in page.words and command in page.words
    assert {"without-a-clone", "progress"} <= page.places
    assert "../play/notebooks/index.html?path=p00_basic.ipynb" not in page.to
    assert "play/notebooks/index.html?path=p00_basic.ipynb" in Links(made / "README.html").to


def test_with_an_address_there_are_links_to_colab_and_to_the_rest_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "published", lambda root: "https://github.com/some/one")
    site.write(ROOT, tmp_path)
    colab = "https://colab.research.google.com/github/some/one/blob/colab/index.ipynb"
    assert colab in Links(tmp_path / "index.html").to
    table = "https://github.com/some/one/blob/main/tests/torch_truth/TABLE.md"
    assert any(table in Links(page).to for page in tmp_path.glob("docs/*.html"))


def test_a_gallery_without_a_place_for_the_button_is_refused() -> None:
    with pytest.raises(LiteError, match="no button"):
        site._front("<main></main>", "")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["README.html", "docs/install.html", "docs/grading.html"])
def test_pages_fit_a_phone_and_nothing_hinders_their_readers(
    browser: Browser, made: Path, tmp_path: Path, scheme: Scheme, name: str
) -> None:
    def look(page: Any) -> Any:
        keep(page.screenshot(full_page=True), f"site-{Path(name).stem}-{scheme}", tmp_path)
        return page.evaluate("() => document.documentElement.scrollWidth"), axe(page)[0]

    assert browser.visit((made / name).as_uri(), look, 400, scheme=scheme) == (400, {})
