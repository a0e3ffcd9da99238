"""The board: its engine in JavaScript agrees with the machine, and its page does what it says."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from drawing import board
from lib import PuzzleError, run, schedule
from solutions.build.pages.board import PAGE, SOURCE
from solutions.build.sources.files import ROOT
from solutions.p06_gpipe import gpipe
from tests.browser import Browser, axe
from tools.board import IN_PAGE, agrees, cases


def visit(browser: Browser, work: Callable[[Any], Any], **how: Any) -> Any:
    def there(page: Any) -> Any:
        page.add_script_tag(path=ROOT / SOURCE / "checks.js")
        return work(page)

    return browser.visit((ROOT / "puzzles" / PAGE).as_uri() + "#messages", there, **how)


def test_the_engine_agrees_with_the_machine(browser: Browser) -> None:
    some, wanted = cases()
    found = visit(browser, lambda page: page.evaluate(IN_PAGE, [case.on_the_board() for case in some]))
    assert [(case.rows, case.cost) for case, *pair in zip(some, found, wanted, strict=True) if not agrees(*pair)] == []


@pytest.mark.parametrize("name", ["levels", "moves", "addresses", "broken", "hands", "keys", "pasted"])
def test_what_has_to_hold_on_the_page(browser: Browser, name: str) -> None:
    found, refused = visit(browser, lambda page: page.evaluate(f"[CHECKS.{name}(), WRONG]"))
    assert found == []
    for rows, words in refused.items() if name == "pasted" else ():
        with pytest.raises(PuzzleError, match=re.escape(words)):
            schedule(rows)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_readers_have_all_of_it(browser: Browser, width: int, scheme: str) -> None:
    seen = visit(browser, lambda page: (axe(page)[0], page.evaluate("innerWidth")), width=width, scheme=scheme)
    opened = browser.page(board(run(gpipe, 4, 4, 8)).page, "() => $('figures').textContent")
    assert seen == ({}, width) and "this is GPipe" in opened.measured
