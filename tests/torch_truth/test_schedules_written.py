"""Whether PyTorch runs what a run of ours writes: real stages in real processes, gradients beside autograd's."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lib import run, schedule
from solutions.build.sources.files import ROOT
from solutions.p05_pipeline import pipeline
from solutions.p06_gpipe import gpipe
from solutions.p13_one_f_one_b import one_f_one_b
from solutions.p14_interleaved import interleaved
from solutions.p15_breadth_first import breadth_first
from solutions.p16_zero_bubble import zero_bubble
from solutions.p29_zbv import zbv
from solutions.p30_dualpipe import cut_in_half, dualpipe
from tests.marks import compares_with_torch

SIZES = {gpipe: (2, 2, 3), one_f_one_b: (2, 4, 4), interleaved: (2, 4, 4), zero_bubble: (2, 2, 4), zbv: (2, 4, 4)}
AT_ONCE: list[tuple[str, Any, dict[str, Any]]] = [
    ("pipeline", pipeline, {"ranks": 2, "layers": 4, "batches": 3}),
    ("breadth_first", breadth_first, {"ranks": 4, "layers": 8, "batches": 8, "mesh": {"stage": 2, "shard": 2}}),
]
"""Whole batches in one piece, and copies of a pipeline."""
FOLDED = "0F0, 0F1, 3F0, 3I0, 3F1, 3I1, 3W0, 3W1, 0B0, 0B1\n1F0, 2F0, 1F1, 2F1, 2B0, 1B0, 2B1, 1B1"


@pytest.mark.process
@pytest.mark.slow
@compares_with_torch
def test_torch_trains_by_the_rows_that_a_run_writes(tmp_path: Path) -> None:
    files = []
    for solution, (ranks, layers, batches) in SIZES.items():
        files.append(tmp_path / f"{solution.__name__}.csv")
        files[-1].write_text(run(solution, ranks=ranks, layers=layers, batches=batches).schedule())
    files.append(tmp_path / "half_of_dualpipe.csv")
    half = run(cut_in_half, ranks=2, layers=8, batches=4, mesh={"half": 1, "place": 2})
    assert "OVERLAP_F_B" in half.schedule()
    files[-1].write_text(half.schedule())
    both = run(dualpipe, ranks=4, layers=8, batches=8, mesh={"half": 2, "place": 2}).schedule()
    files.append(tmp_path / "dualpipe.csv")
    files[-1].write_text(both)
    for name, fn, size in AT_ONCE:
        files.append(tmp_path / f"{name}.csv")
        files[-1].write_text(run(fn, **size).schedule())
    files.append(tmp_path / "folded.csv")
    files[-1].write_text(run(schedule(FOLDED), ranks=2, layers=4, batches=2).schedule())
    commands = [
        [sys.executable, "-W", "ignore", "-m", "tests.torch_truth.stages", str(rank), str(tmp_path / "meet")]
        for rank in range(2)
    ]
    workers = [
        subprocess.Popen(
            [*command, *map(str, files)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for command in commands
    ]
    try:
        for process in workers:
            out, said = process.communicate(timeout=120)
            assert process.returncode == 0, said
            differences = [float(word) for word in out.split()]
            assert len(differences) == len(files)
            assert max(differences) < 1e-14, dict(zip(files, differences, strict=True))
    finally:
        for process in workers:
            process.kill()
