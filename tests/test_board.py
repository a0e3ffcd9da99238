"""The board: its engine in JavaScript agrees with the machine, and its page does what it says."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from lib import PuzzleError, schedule
from solutions.build.pages.board import PAGE, SOURCE
from solutions.build.sources.files import ROOT
from tests.browser import Browser, axe
from tests.test_gallery import FROM_ELSEWHERE
from tools.board import IN_PAGE, agrees, cases

BOARD = ROOT / "puzzles" / PAGE


def visit(browser: Browser, work: Callable[[Any], Any], address: str = "", **how: Any) -> Any:
    def there(page: Any) -> Any:
        wrong = list[str]()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.reload()
        page.add_script_tag(path=ROOT / SOURCE / "checks.js")
        return work(page), wrong

    found, wrong = browser.visit(BOARD.as_uri() + address, there, **how)
    assert not wrong
    return found


def test_the_engine_agrees_with_the_machine(browser: Browser) -> None:
    some, wanted = cases()
    given = [case.on_the_board() for case in some]
    found = visit(browser, lambda page: page.evaluate(IN_PAGE, given))
    assert [(case.rows, case.cost) for case, *pair in zip(some, found, wanted, strict=True) if not agrees(*pair)] == []
    assert sum(not want["whole"] for want in wanted) > 50


@pytest.mark.parametrize("name", ["levels", "moves", "addresses", "broken", "pasted"])
def test_what_has_to_hold_on_the_page(browser: Browser, name: str) -> None:
    found, wrong = visit(browser, lambda page: page.evaluate(f"[CHECKS.{name}(), WRONG]"))
    assert found == []
    for rows, words in wrong.items() if name == "pasted" else ():
        with pytest.raises(PuzzleError, match=re.escape(words)):
            schedule(rows)


def test_hands_keys_and_readers_have_all_of_it_and_it_is_small(browser: Browser) -> None:
    def by_hand(page: Any) -> Any:
        for pair in (("3B0", "3F1"), ("2B0", "2F2"), ("1B0", "1F3"), ("0B0", "0F4")):
            for piece, press in zip(pair, (page.mouse.down, page.mouse.up), strict=True):
                box = page.locator(f'[data-id="{piece}"]').bounding_box()
                page.mouse.move(box["x"] + 5, box["y"] + 9, steps=4)
                press()
            page.click("#repeat")
        return page.inner_text("main")

    def by_keys(page: Any) -> Any:
        page.focus("#board button")
        for key in ("Enter", "ArrowDown", "Enter", "b", "ArrowUp", "b", *"zzyy"):
            page.keyboard.press(key)
        return page.inner_text("main")

    assert "this is 1F1B" in visit(browser, by_hand, "#memory") and "Done" in visit(browser, by_keys, "#first")
    for how in ({"width": 1280, "scheme": "light"}, {"width": 390, "scheme": "dark"}):
        wide = lambda page: (axe(page)[0], page.evaluate("document.documentElement.scrollWidth"))  # noqa: E731
        assert visit(browser, wide, "#messages", **how) == ({}, how["width"])
    text = BOARD.read_text(encoding="utf-8")
    assert len(text.encode()) < 90_000 and FROM_ELSEWHERE.search(text) is None and "://" not in text
