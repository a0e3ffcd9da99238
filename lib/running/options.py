"""What ``run`` is told of a machine, as options of a command at a shell."""

import argparse
from collections.abc import Mapping
from typing import Any

from ..machine.check import TRAINED

SIZES = {
    "ranks": "GPUs (a puzzle's function: those of the puzzle)",
    "layers": "layers (a puzzle's function: those of the puzzle)",
    "batches": "micro-batches (a puzzle's function: those of the puzzle)",
    "node_size": "ranks in a node",
    "hosts": "hosts: one for each GPU, or one for each node (none)",
    "experts": "experts of every other layer (none)",
}
"""The options that are numbers, by their names among the parameters of ``run``."""


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how large a machine is."""
    for name, says in SIZES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="N", type=int, help=says)
    parser.add_argument("--mesh", metavar="M", type=_mesh, help="names and sizes of axes: replica=2,shard=4")
    parser.add_argument("--train", choices=TRAINED, help="what is trained: weights, or adapters beside them")


def size_from(options: argparse.Namespace, size: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``run`` that were given as options, and for the rest those of a size."""
    known = {name: getattr(options, name) for name in (*SIZES, "mesh", "train")}
    given = {name: value for name, value in known.items() if value is not None}
    if "ranks" in given and "mesh" not in given:  # the axes, nodes and hosts of the size are those of another machine
        size = {name: value for name, value in size.items() if name not in ("mesh", "node_size", "hosts")}
    return {**size, **given}


def _mesh(text: str) -> dict[str, int]:
    pairs = [part.split("=") for part in text.split(",")]
    if not all(len(pair) == 2 and pair[0] and pair[1].isdigit() for pair in pairs):
        raise argparse.ArgumentTypeError("axes are written so: replica=2,shard=4")
    return {name: int(size) for name, size in pairs}
