"""A schedule as text."""

import pytest

from lib import PuzzleError, Run
from lib.record.codes import CELLS, Code, code_of, grid, read_code, text_of
from lib.record.events import MARKS
from tests.drawing_events import chain, event, sharded_run, staged_run

STAGED = """\
staged on 2 ranks: time 7.7 ticks, peak memory 1,179,648 elements
where the time of all ranks goes: forward 26%, backward 26%, update 6%, only communicates 10%,
    waits to begin 8%, waits between 16%, waits at the end 8%
tick    0   1  1.2 1.4 2.2 2.4   2.6 3.6    4.6 4.8 5   5.8 6  6.2 7.2
rank 0  0F0 >1 0F1 -   >1  .     .   .      .   <1  0B0 -   <1 0B1 0U
rank 1  .   .  <0  1F0 -   L0+<0 1F1 L1+1B0 >0  1B1 -   >0  1U -   ."""

SHARDED = """\
sharded on 2 ranks: time 6.5 ticks, peak memory 1,179,648 elements
where the time of all ranks goes: forward 31%, backward 31%, update 15%, only communicates 23%
tick    0   0.3     1.3 2.3    2.6 3.6 3.9 4.2 5.2 5.5 6
rank 0  0AG 1AG+0F0 1F0 L0+1AG 1B0 1RS 0AG 0B0 0RS 0U  1U
rank 1  0AG 1AG+0F1 1F1 L1+1AG 1B1 1RS 0AG 0B1 0RS 0U  1U"""


def test_a_run_prints_as_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    assert str(staged_run(2, 2)) == STAGED
    assert str(sharded_run(2, 2)) == SHARDED


def columns(text: str) -> list[list[str]]:
    """The words of a grid by column, blocks one after the other; the first column has the names of the rows."""
    rows = [[line.replace("rank ", "rank") for line in block.splitlines()] for block in text.split("\n\n")]
    found = [[row.split() for row in block] for block in rows]
    names = [[row[0] for row in block] for block in found]
    assert all(block == names[0] for block in names)  # each block says whose lines these are
    return [names[0], *(list(column) for block in found for column in zip(*[row[1:] for row in block], strict=True))]


@pytest.mark.parametrize(
    "made", [staged_run(4, 4), sharded_run(4, 3), staged_run(2, 2)], ids=["stages", "shards", "few"]
)
@pytest.mark.parametrize("width", [1, 20, 40, 79, 80, 110, 400])
def test_a_long_grid_is_folded_and_loses_nothing(made: Run, width: int) -> None:
    folded, wide = grid(made.events, width=width), grid(made.events, width=10**6)
    assert "\n\n" not in wide and columns(folded) == columns(wide)
    for block in folded.split("\n\n"):
        lines = block.splitlines()
        assert max(map(len, lines)) <= width or len(columns(block)) == 2  # a single column may be too wide
        assert lines[0].startswith("tick")
    if max(map(len, wide.splitlines())) <= width:
        assert folded == wide


def test_it_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (50, 90):
        monkeypatch.setenv("COLUMNS", str(width))
        assert 0.7 * width < max(map(len, grid(staged_run(4, 4).events).splitlines())) <= width


@pytest.mark.parametrize("made", [staged_run(4, 4), sharded_run(4, 3)])
def test_every_code_parses_back_and_stands_in_the_column_of_its_start(
    made: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    lines = str(made).splitlines()[2:]
    head = [float(tick) for tick in lines[0].split()[1:]]
    for rank, line in enumerate(lines[1:]):
        found = []
        for tick, cell in zip(head, line.split()[2:], strict=False):
            for text in cell.split("+") if cell not in "-." else ():
                found.append((tick, read_code(text)))
                assert str(read_code(text)) == text
        own = [e for e in made.events if e.rank == rank and e.kind not in MARKS]  # type: ignore[attr-defined]
        assert sorted(found, key=str) == sorted(((round(e.start, 9), code_of(e)) for e in own), key=str)


@pytest.mark.parametrize("made", [staged_run(4, 4), sharded_run()])
def test_a_code_is_written_as_it_says(made: Run) -> None:
    listed = event(0, "allgather", 0, 1, 5)._replace(layers=(5, 4, 3, 0))
    for one in (*made.events, listed, event(0, "nobody_knows", 0, 1, 2)):
        assert text_of(one) == str(code_of(one))


def test_all_reduce_unknown_operations_and_sets_have_codes() -> None:
    assert str(code_of(event(0, "allreduce", 0, 1, layer=3, batches=[0, 1]))) == "3AR"
    assert str(code_of(event(0, "unheard_of", 0, 1, layer=3))) == "3unheard_of"
    assert str(code_of(event(0, "forward", 0, 1, layer=10, batches=[0, 4, 5, 6]))) == "10F0,4-6"
    assert read_code("10F0,4-6") == Code("forward", 10, frozenset({0, 4, 5, 6}))


@pytest.mark.parametrize("wrong", ["", "F F", "3", "2F0;1", "-", "2F-", "2F1-", "2F,1", "2F1,"])
def test_what_is_no_code_is_refused(wrong: str) -> None:
    with pytest.raises(PuzzleError, match="no code of an operation"):
        read_code(wrong)


@pytest.mark.long
def test_a_grid_too_large_for_columns_lists_the_codes() -> None:
    events = chain(0, CELLS + 1)
    assert grid(events[:6]).splitlines()[1] == "rank 0  0F0 1B1 2F2 3B3 0F0 1B1"
    lines = grid(events).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("rank 0  0F0 1B1 2F2")
