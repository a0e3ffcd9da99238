"""The board: its engine in JavaScript agrees with the machine, and its page does what it says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

from drawing import board
from lib import Cost, PuzzleError, run, schedule
from solutions.build.pages.board import PAGE, SOURCE
from solutions.build.sources.files import ROOT
from solutions.p06_gpipe import gpipe
from tests.browser import Browser, axe
from tests.marks import compares_with_torch
from tests.slow import EVERYTHING
from tools.board import ENDING, IN_PAGE, agrees, cases


def visit(browser: Browser, work: Callable[[Any], Any], **how: Any) -> Any:
    def there(page: Any) -> Any:
        page.add_script_tag(path=ROOT / SOURCE / "checks.js")
        return work(page)

    return browser.visit((ROOT / "puzzles" / PAGE).as_uri() + "#messages", there, **how)


def test_the_engine_agrees_with_the_machine(browser: Browser) -> None:
    some, wanted = cases(ENDING if EVERYTHING else ENDING // 4)
    found = visit(browser, lambda page: page.evaluate(IN_PAGE, [case.on_the_board() for case in some]))
    assert [(case.rows, case.cost) for case, *pair in zip(some, found, wanted, strict=True) if not agrees(*pair)] == []


@pytest.mark.parametrize("name", ["levels", "moves", "broken", "hands", "keys", "sent", "odd", "pasted"])
def test_what_has_to_hold_on_the_page(browser: Browser, name: str) -> None:
    found, refused = visit(browser, lambda page: page.evaluate(f"[CHECKS.{name}(), WRONG]"))
    assert found == []
    for rows, words in refused.items() if name == "pasted" else ():
        with pytest.raises(PuzzleError, match=re.escape(words)):
            schedule(rows)


@compares_with_torch
def test_torch_loads_the_rows_of_the_board_and_adds_the_messages_that_it_has(browser: Browser, tmp_path: Path) -> None:
    from torch.distributed.pipelining import PipelineStage, schedules

    found = visit(browser, lambda page: page.evaluate("CHECKS.torch()"))
    for rows, whole, with_messages in found:
        (file := tmp_path / "rows.csv").write_text(rows + "\n", encoding="utf-8")
        plan = schedule(rows)
        size = {"group_rank": 0, "group_size": plan.ranks, "num_stages": plan.stages, "submod": None}
        stage: Any = create_autospec(PipelineStage, instance=True, **size)
        runtime = schedules._PipelineScheduleRuntime([stage], plan.micro_batches)
        runtime._load_csv(str(file), format="compute_comms" if with_messages else "compute_only")
        order: Any = runtime.pipeline_order_with_comms
        if not with_messages:  # beside them it adds UNSHARD and REDUCE_GRAD, which take turns: here it does not
            home = runtime.stage_index_to_group_rank.__getitem__
            order = schedules._add_send_recv(runtime.pipeline_order, home, plan.stages)
        assert [",".join(map(str, order[rank])) for rank in range(plan.ranks)] == whole.split("\n")
    assert len(found) == 21 and any(late for *_, late in found)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_readers_have_all_of_it(browser: Browser, width: int, scheme: str) -> None:
    seen = visit(browser, lambda page: (axe(page)[0], page.evaluate("innerWidth")), width=width, scheme=scheme)
    opened = browser.page(board(run(gpipe, 4, 4, 8)).page, "() => $('figures').textContent")
    assert seen == ({}, width) and "this is GPipe" in opened.measured


def test_a_run_at_prices_that_the_board_has_not_is_refused() -> None:
    with pytest.raises(PuzzleError, match=r"got: +receive"):
        board(run(gpipe, 4, 4, 8, cost=Cost(receive=0.1)))
    with pytest.raises(PuzzleError, match=r"got: +pass_to\n"):
        board(run(gpipe, 4, 4, 8, node_size=2))
