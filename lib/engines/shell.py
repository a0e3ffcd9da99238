"""``python -m lib run`` runs a function of a file on an engine, ``worker`` one rank of that under torchrun."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ..basics.errors import PuzzleError
from ..grading.commandline import Usage, function_in, size_for
from ..lab.commands import MODULE, called
from ..machine.check import TRAINED
from ..machine.cost import Shape
from ..running.options import add_machine
from ..running.run import ENGINES, Settings, run
from ..running.workload import KINDS, TOLERANCES, Workload
from .like import COUNTERPARTS, NONE, first_difference, side_by_side

RIGHT, WRONG, USAGE = 0, 1, 2


def main(arguments: Sequence[str]) -> int:
    """Carry out a command line. Return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        function = function_in(options.what)
        return int(options.do(function, size_for(function, options), options))
    except Usage as error:
        print(f"{called()} {options.command}: {error}", file=sys.stderr)
        return USAGE
    except PuzzleError as error:
        print(error, file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=called(), description="Run a function of a file of yours.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, do, says in (
        ("run", _run, "run a function on the simulated machine, or on real tensors"),
        ("worker", _worker, "be one rank of a run, as torchrun starts it on one machine or many"),
    ):
        about = says.capitalize() + ". Of the file only imports, definitions, classes and constants are run."
        status = "Exit status: 0 right, 1 wrong or failed, 2 usage."
        if name == "run":
            status += " With --like: 0 right and identical, 1 not, 2 if there is nothing to compare with."
        command = commands.add_parser(name, help=says, description=about, epilog=status)
        command.set_defaults(do=do)
        add = command.add_argument
        add("what", metavar="FILE:function", help="a .py or .ipynb file and a function in it")
        if name == "run":
            add("--engine", choices=ENGINES, default="simulated", help="who runs it (simulated)")
            like = "show where it first differs from what PyTorch does for this puzzle (torch need not be there)"
            add("--like", choices=("torch",), help=like)
        add_machine(command)
        layers = "what a layer is: a residual MLP, a transformer block, or an MLP that is dealt to experts (mlp)"
        add("--layer", choices=KINDS, default="mlp", help=layers)
        add("--dtype", choices=tuple(TOLERANCES), default="float32", help="precision (float32)")
        add("--hidden", metavar="N", type=int, default=64, help="numbers a token (64)")
        add("--length", metavar="N", type=int, default=16, help="tokens a micro-batch (16)")
        add("--seed", metavar="N", type=int, default=0, help="of all numbers (0)")
        add("--pace", metavar="S", type=float, default=0.0, help="seconds that a tick of compute takes at least (0)")
        add("--device", choices=("auto", "cpu"), default="auto", help="auto: a GPU for each rank, if there are so many")
        add("--meter", action="store_true", help="count all tensors that live, stored or not")
        add("--kill", metavar="R,N", type=_rank_and_record, help="kill rank R as it begins record N of its log")
        add("--profile", metavar="FOLDER", help="processes: write what PyTorch's profiler sees of each rank there")
        add("--timeout", metavar="S", type=float, default=60.0, help="seconds for which a rank may be silent (60)")
    return parser


def _rank_and_record(text: str) -> tuple[int, int]:
    rank, record = text.split(",")
    return int(rank), int(record)


def _run(function: Any, size: dict[str, Any], options: argparse.Namespace) -> int:
    if options.like is not None:
        return _like(function, size, options)
    real = {} if options.engine == "simulated" else _options(options, "layer", "dtype", "hidden", "length", "seed")
    if options.engine == "processes":
        real |= _options(options, "pace", "device", "meter", "kill", "profile")
    _show(run(function, **size, engine=options.engine, timeout=options.timeout, **real))
    return RIGHT


def _like(function: Any, size: dict[str, Any], options: argparse.Namespace) -> int:
    """Run on the simulated machine and compare with PyTorch. Raise Usage where there is nothing to compare with."""
    name = function.__name__
    if name in NONE:
        raise Usage(f"{name} is not compared. {NONE[name]}")
    if name not in COUNTERPARTS:
        known = f"PyTorch is known for {', '.join(COUNTERPARTS)}"
        raise Usage(f"--like goes by the function's name, and {known}: not {name}")
    if options.engine != "simulated":
        raise Usage("--like compares a simulated run: leave --engine out")
    done = run(function, **size, timeout=options.timeout)
    done.check()
    try:
        found = first_difference(done.models, COUNTERPARTS[name])
    except PuzzleError as error:  # PyTorch cannot do it at this size
        raise Usage(str(error)) from None
    print(side_by_side(name, done.models, COUNTERPARTS[name], found))
    return RIGHT if found is None else WRONG


def _options(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: getattr(options, name) for name in names}


def _show(done: Any) -> None:
    """Print what there is to say of a run. Raise PuzzleError if it is not right."""
    print(repr(done))
    for line in getattr(done, "facts", list)():
        print(line)
    done.check()


def _worker(function: Any, size: dict[str, Any], options: argparse.Namespace) -> NoReturn:
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        example = f"torchrun --standalone --nproc-per-node 4 -m {MODULE} worker {options.what}"
        raise Usage(f"{', '.join(missing)} not set: it is started by torchrun, for example\n    {example}")
    from .distributed.recording import Setup
    from .torchrun import work_for

    started, hosts = int(os.environ["WORLD_SIZE"]), size.get("hosts", 0)
    if size.setdefault("ranks", started - hosts) != started - hosts:
        of_them = f", {hosts} of them hosts" if hosts else ""
        raise Usage(f"torchrun has started {started} ranks, and {size['ranks'] + hosts} are asked for{of_them}")
    numbers = _options(options, "layer", "dtype", "hidden", "length", "seed")
    numbers["train"] = size.pop("train", TRAINED[0])
    work = Workload(size.pop("layers", 2), size.pop("batches", 1), **numbers)
    settings = Settings(options.timeout, **_options(options, "pace", "device", "meter", "kill", "profile"))
    shape = Shape.of(**size)
    work_for(function, Setup(shape, work.on(shape), settings), _show)
