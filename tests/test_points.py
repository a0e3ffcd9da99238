"""Points by a formula, on every face of the grader, and the leaderboard of a class."""

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from lib import PuzzleError, grade
from lib.course.points import assignment, nearness, score_of
from lib.course.specs import Puzzle, puzzles
from lib.grading import page
from lib.grading.verdict import ERROR, FAIL, PASS, TODO, Report, Verdict
from lib.referee import files, leaderboard, shell
from solutions.build.runs.programs import defined_by
from solutions.build.sources.files import source_of

EVERY = pytest.mark.parametrize("puzzle", puzzles().values(), ids=puzzles().keys())
FSDP = puzzles()["fsdp"]


def passed(puzzle: Puzzle, time: float, memory: int) -> Verdict:
    return Verdict(puzzle, PASS, "", right=True, time=time, memory=memory)


@EVERY
def test_the_frontier_has_all_points_and_the_target_more_than_half(puzzle: Puzzle) -> None:
    for point in puzzle.frontier:
        assert passed(puzzle, point["time"], point["memory"]).score == 1
    assert 0.5 < passed(puzzle, puzzle.target["time"], puzzle.target["memory"]).score <= 1


@EVERY
def test_less_time_or_memory_never_gives_less(puzzle: Puzzle) -> None:
    times = [puzzle.frontier[0]["time"] * (1 + step / 10) for step in range(8)]
    sizes = [puzzle.frontier[-1]["memory"] * (1 + step / 10) for step in range(8)]
    for row in ([score_of(puzzle, time, size) for size in sizes] for time in times):
        assert row == sorted(row, reverse=True)
    for size in sizes:
        row = [score_of(puzzle, time, size) for time in times]
        assert row == sorted(row, reverse=True)


def test_the_formula_of_the_docs() -> None:
    assert nearness(FSDP, 20.4, 2359296) == pytest.approx(
        max(p["time"] / 20.4 * p["memory"] / 2359296 for p in FSDP.frontier)
    )
    assert score_of(FSDP, 20.4, 2359296) == round(0.5 + 0.3 * nearness(FSDP, 20.4, 2359296), 4) == 0.7125
    assert score_of(FSDP, 15.6, 2097152) == 1  # the star, and on the frontier
    near = nearness(FSDP, 15.5, 2228224 + 1)
    assert 0.98 < near < 1 and score_of(FSDP, 15.5, 2228224 + 1) == round(0.5 + 0.3 * near, 4)  # too large for the star
    repair = next(one for one in puzzles().values() if one.repair)
    assert repair.star is None and score_of(repair, *repair.target.values()) >= 0.7


@pytest.mark.parametrize("status", [FAIL, TODO, ERROR])
@pytest.mark.parametrize("right", [True, False, None])
def test_what_does_not_pass_has_none_and_right_is_never_null(status: str, right: bool | None) -> None:
    verdict = Verdict(FSDP, status, "", right=right, time=15.6, memory=2097152, worth=10)
    told = verdict.as_json()
    assert (told["score"], told["points"], told["worth"]) == (0, 0, 10)
    assert told["right"] is (right is True)


def test_a_notebook_tells_the_score() -> None:
    fsdp = defined_by(source_of("p04_fsdp"))["fsdp"]
    verdict = grade(fsdp)
    assert verdict.score == score_of(FSDP, 20.4, 1966080) == 0.7338 and verdict.points is None
    assert grade(lambda model: None, "fsdp").score == 0


def test_what_puzzles_are_worth() -> None:
    assert assignment("fsdp=20, 6=2.5") == {"fsdp": 20, "gpipe": 2.5}
    assert assignment("10") == dict.fromkeys(puzzles(), 10)


@pytest.mark.parametrize(
    "text", ["", "x", "0", "-1", "nan", "inf", "fsdp=", "fsdp=0", "fspd=1", "fsdp=1,4=2", "fsdp=1,"]
)
def test_what_no_puzzle_is_worth(text: str) -> None:
    with pytest.raises(PuzzleError):
        assignment(text)


STRANGE = [
    "<script>alert(1)</script>",
    "a|b",
    "=1+1",
    "`x` *y* [z](http://e.vil)",
    "www.evil.org",
    "Ünal & Söhne",
    '"><b>',
]
CLASS = [
    Report(
        [replace(passed(FSDP, 15.6, 2097152), worth=20), Verdict(puzzles()["gpipe"], TODO, "", worth=10)], student=name
    )
    for name in STRANGE
]
CLASS += [
    Report(
        [replace(passed(FSDP, 20.4, 2359296), worth=20), Verdict(puzzles()["gpipe"], FAIL, "", worth=10)], student="Zoe"
    ),
    Report([], student="nobody", not_graded="not graded: interrupted"),
]


def test_points_stand_in_json_and_csv_and_gradescopes_and_the_headline() -> None:
    [first, second] = json.loads(files.as_json(CLASS[-2:]))["results"]
    assert (first["score"], first["points"], first["worth"]) == (0.7125, 14.25, 20)
    assert (second["score"], second["points"], second["worth"]) == (0, 0, 10)
    *_, zoe, nobody = csv.DictReader(io.StringIO(files.as_csv(CLASS)))
    found = [zoe[name] for name in ("points", "points possible", "fsdp points", "gpipe points")]
    assert found == ["14.25", "30", "14.25", "0.0"]
    assert (nobody["passed"], nobody["points"]) == ("not graded", "")
    scope = json.loads(files.as_gradescope(CLASS[-2]))
    assert scope["score"] == 14.25 and [(one["score"], one["max_score"]) for one in scope["tests"]] == [
        (14.25, 20),
        (0, 10),
    ]
    assert "1 of 2 puzzles pass, 14.25 of 30 points" in page.report_text(CLASS[-2])


def test_without_points_the_faces_are_as_they_were() -> None:
    plain = [Report([passed(FSDP, 20.4, 2359296)], student="Zoe")]
    assert files.as_csv(plain).startswith("student,passed,fsdp status,fsdp ticks,fsdp elements,fsdp star\n")
    scope = json.loads(files.as_gradescope(plain[0]))
    assert (scope["score"], scope["tests"][0]["max_score"]) == (1.0, 1.0)
    assert "points" not in page.report_text(plain[0])


class Cells(HTMLParser):
    """The texts of the cells of a table, and all tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        self.inside = tag == "td"
        self.cells += [""] * self.inside

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "td"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.cells[-1] += data


def test_a_leaderboard_shows_every_name_as_it_is() -> None:
    rendered = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(leaderboard.as_markdown(CLASS))
    for shown in (Cells(leaderboard.as_html(CLASS)), Cells(rendered)):
        assert {*STRANGE, "Zoe"} <= {*shown.cells} and "nobody" not in shown.cells
        assert not shown.tags & {"script", "b", "a", "em", "code"}


def test_those_with_most_points_come_first_and_share_a_place() -> None:
    heads, rows, _ = leaderboard.table(CLASS)
    assert heads == ["place", "student", "points", "pass", "stars", "fsdp", "gpipe"]
    assert [row[::2][:2] for row in rows] == [["1", "20"]] * len(STRANGE) + [[f"{len(STRANGE) + 1}", "14.25"]]
    assert [row[1] for row in rows[:-1]] == sorted(STRANGE) and rows[-1][1] == "Zoe"
    assert rows[0][3:] == ["1", "1", "15.6 ticks · 2,097,152 elements · ★", ""]
    assert "Not graded: nobody" in leaderboard.as_html(CLASS)
    plain = [replace(report, verdicts=[replace(one, worth=None) for one in report.verdicts]) for report in CLASS]
    assert leaderboard.table(plain)[1][-1][2] == "0.71"


@pytest.mark.process
def test_an_assignment_at_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, file in (("anna", "p04_fsdp"), ("bob", "p06_gpipe")):
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "work.py").write_text(source_of(file).read_text(encoding="utf-8"))
    board = ["--leaderboard", "board.html", "--csv", "c.csv", "--json", "c.json"]
    assert shell.main(["grade", "--each", "class", "--points", "fsdp=20,gpipe=10", *board]) == 1
    assert "anna: 1 of 2 puzzles pass, 14.68 of 30 points" in capsys.readouterr().out
    found = {
        (one["student"], one["puzzle"]): one["points"] for one in json.loads(Path("c.json").read_text())["results"]
    }
    assert found.keys() == {(name, puzzle) for name in ("anna", "bob") for puzzle in ("fsdp", "gpipe")}
    assert (found["anna", "fsdp"], found["anna", "gpipe"], found["bob", "fsdp"]) == (14.68, 0, 0)
    assert 5 < found["bob", "gpipe"] <= 10
    assert re.search(r"<td>1</td><td>anna</td><td>14.68</td>", Path("board.html").read_text())
    for wrong in (["--leaderboard", "b.html"], ["--each", "class", "--leaderboard", "b.txt"], ["--points", "fsdp"]):
        assert shell.main(["grade", *wrong]) == 2
