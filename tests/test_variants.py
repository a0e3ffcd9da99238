"""Variants of puzzles: drawn from a seed, with targets that are run, and graded as any puzzle."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import PuzzleError
from lib.course import specs
from lib.course.outlines import OUTLINES, PROGRAMS
from lib.course.specs import Puzzle, cost_named, cost_source, find, puzzles
from lib.course.variants import use_variants
from lib.grading.judge import judge
from lib.grading.verdict import FAIL, PASS, Verdict
from lib.machine.cost import Cost, RingCost
from lib.referee import shell
from lib.running.run import run
from solutions.build.products import use_tables
from solutions.build.runs.course import Course
from solutions.build.sources.files import ROOT
from solutions.build.sources.specs import check_order
from tests.corpus.forgeries import SOLUTION, WRONG
from tests.slow import some
from tools import tasks, variants

SEED = "fall-2027"
CHOSEN = ("fsdp", "gpipe", *some(["ddp", "hierarchical", "interleaved"], 3))
OWN = dict(puzzles())
SIX = SOLUTION.replace("range(model.LAYERS)", "range(LAYERS)").replace("model.LAYERS", "LAYERS")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Variants of some puzzles, and their notebooks."""
    made = tmp_path_factory.mktemp("variants")
    try:
        assert variants.main([str(made), "--seed", SEED, *CHOSEN]) == 0
        yield made
    finally:
        use_tables({})


@pytest.fixture
def used(folder: Path) -> Iterator[Path]:
    """The file of the variants, in use."""
    use_variants(folder / "variants.json")
    try:
        yield folder
    finally:
        use_tables({})


@pytest.fixture
def unused() -> Iterator[None]:
    """The puzzles of the course, before and afterwards."""
    use_tables({})
    try:
        yield
    finally:
        use_tables({})


def test_a_cost_with_other_prices() -> None:
    assert cost_named("default(backward=2, collective=0.15)") == Cost(backward=2, collective=0.15)
    assert cost_source("default(backward=2)") == "Cost(backward=2)"
    faster = cost_named("two_speeds(bandwidth=4915200)")
    assert isinstance(faster, RingCost) and faster.bandwidth == 4_915_200 and faster.latency == 0.03
    with pytest.raises(PuzzleError):
        cost_named("free(backward=2)")


def test_the_same_seed_gives_the_same_variants_and_another_others(folder: Path, unused: None, tmp_path: Path) -> None:
    names = some(["fsdp", "gpipe"], 2)
    chosen = [OWN[name] for name in names]
    first = json.loads((folder / "variants.json").read_text())
    again, _ = variants.table(chosen, SEED)
    for name in names:
        assert json.loads(json.dumps(again["specs.json"][name])) == first["specs.json"][name]
        for table in (OUTLINES, PROGRAMS):
            assert json.loads(json.dumps(again[table][name])) == first[table][name]
    others = [variants.varied(OWN["fsdp"], seed) for seed in ("a", "b", "c")]
    assert len({json.dumps([one["size"], one["cost"]]) for one in others}) > 1


@pytest.mark.parametrize("name", CHOSEN)
def test_a_variant_is_another_machine_with_figures_that_were_run(name: str, used: Path) -> None:
    puzzle, own = find(name), OWN[name]
    assert puzzle.variant == SEED and (puzzle.size, puzzle.cost) != (own.size, own.cost)
    assert (puzzle.ideas, puzzle.layout, puzzle.hints) == (own.ideas, own.layout, own.hints)
    course = Course([*OWN.values()])
    for point in puzzle.frontier:
        verdict = judged(puzzle, course.program(puzzle, point["by"]))
        assert verdict.status == PASS and verdict.score == 1 and "among the best known" in verdict.message
    verdict = judged(puzzle, course.solution(puzzle))
    assert verdict.status == PASS and 0.5 < verdict.score <= 1
    assert "Better" not in verdict.message, "a part of an element or of a tick beats nothing"
    check_order(Path(name), puzzle._asdict())


def judged(puzzle: Puzzle, program: object) -> Verdict:
    cost = cost_named(puzzle.cost)
    return judge(puzzle, lambda size: run(program, **size, cost=cost))  # type: ignore[arg-type]


def test_wrong_programs_stay_wrong(used: Path) -> None:
    for text in (WRONG, "LAYERS = 4\n" + SIX, "from lib import Model\nasync def fsdp(model): return model"):
        names: dict[str, object] = {}
        exec(text, names)
        verdict = judged(find("fsdp"), names["fsdp"])
        assert verdict.status != PASS and verdict.score == 0


@pytest.mark.process
def test_the_grader_takes_them_from_its_own_file_only(
    folder: Path, unused: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    easy = json.loads((folder / "variants.json").read_text())
    easy["specs.json"]["fsdp"]["target"] = {"time": 1e9, "memory": 10**12}
    for name, text in (("right", SOLUTION), ("wrong", WRONG)):
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "fsdp.py").write_text(text)
        (tmp_path / "class" / name / "variants.json").write_text(json.dumps(easy))
    asked = ["--each", "class", "--json", "r.json"]
    assert shell.main(["grade", *asked, "--variants", str(folder / "variants.json")]) == 1
    results = json.loads(Path("r.json").read_text())["results"]
    assert len(results) == 2 * len(CHOSEN), "the puzzles of the file, and no others"
    right, wrong = [one for one in results if one["puzzle"] == "fsdp"]
    spec = json.loads((folder / "variants.json").read_text())["specs.json"]["fsdp"]
    assert (right["status"], wrong["status"]) == (PASS, FAIL) and right["target"] == spec["target"] != OWN[
        "fsdp"
    ].target
    use_tables({})
    assert shell.main(["grade", "fsdp", *asked]) == 1
    assert json.loads(Path("r.json").read_text())["results"][0]["target"] == OWN["fsdp"].target
    capsys.readouterr()
    assert shell.main(["grade", "fsdp", "--variants", "nothing.json"]) == 2
    assert "nothing.json has no variants that can be read" in capsys.readouterr().err.replace("\n  got:      ", ": ")


@pytest.mark.process
def test_a_notebook_of_a_variant_grades_by_it(folder: Path) -> None:
    cells = json.loads((folder / "p04_fsdp.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = "".join(cells[0]["source"])
    spec = json.loads((folder / "variants.json").read_text())["specs.json"]["fsdp"]
    assert f"{spec['target']['time']:g} ticks" in shown and SEED in shown
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    code = [SOLUTION if "async def fsdp" in one else one for one in code]
    script = "\n".join(code).replace("grade(fsdp)", "print(repr(grade(fsdp)))")
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False, env={
        "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "LLM_TRAINING_PUZZLES_PROGRESS": str(folder)
    })  # fmt: skip
    assert "PASS  puzzle 4" in done.stdout and f" of {spec['target']['time']:g} ticks" in done.stdout, done.stderr


def test_a_task_of_a_variant_has_its_figures(folder: Path, unused: None, tmp_path: Path) -> None:
    assert tasks.main([str(tmp_path), "--variants", str(folder / "variants.json")]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {*CHOSEN}
    told = (tmp_path / "fsdp" / "instruction.md").read_text(encoding="utf-8")
    assert "It is a variant" in told and f"{find('fsdp').target['time']:g} ticks" in told.partition("---")[0]


def test_a_file_without_variants_is_refused(tmp_path: Path, unused: None) -> None:
    for text in ("", "[]", "{}", '{"specs.json": {}}', '{"specs.json": 1, "outlines.json": 2}'):
        (tmp_path / "v.json").write_text(text)
        with pytest.raises(PuzzleError, match="no variants"):
            use_variants(tmp_path / "v.json")
    (tmp_path / "v.json").write_text('{"specs.json": {"other": {}}, "outlines.json": {}}')
    with pytest.raises(PuzzleError, match="a variant of no puzzle: other"):
        use_variants(tmp_path / "v.json")
    assert specs.texts == {}
