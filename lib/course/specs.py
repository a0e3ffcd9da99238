"""The puzzles: size, target, layout and hints of each. They are read from specs.json, which the build writes."""

import json
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from math import ceil
from typing import Any, NamedTuple

from ..basics.arguments import one_of_names
from ..basics.errors import PuzzleError
from ..basics.units import HIDDEN, LENGTH, TICKS, Elements, SizeUnit, Unit
from ..machine.check import TRAINED
from ..machine.cost import Cost, ExpertRingCost, RingCost, Shape, WireCost
from ..machine.uneven import Uneven
from ..real import presets
from ..real.hardware import Hardware
from ..real.presets import A100_MEGATRON, GPT_175B
from ..real.prices import RealCost
from ..real.transformer import Transformer
from ..record.labels import AXES, HOSTS, LISTS, SLICES
from .layouts import Size


class Puzzle(NamedTuple):
    """A puzzle. Times are in ticks, memory in elements, or both in the units of its cost.

    Within ``target`` an attempt passes, within ``star`` it also has the star; a program to be repaired has no star.
    ``frontier`` lists the best known figures, from fast to small; none of its points is better than another in both,
    and ``by`` is the program of solutions/ with these figures.
    """

    number: int | str  # "R1" and so on for programs to be repaired
    name: str
    title: str
    size: Size
    other_sizes: str
    target: dict[str, Any]
    frontier: list[dict[str, Any]]
    layout: str
    ideas: list[str]
    difficulty: str
    minutes: int
    hints: list[str]
    file: str  # name of its notebook and of its source, without the ending
    cost: str = "default"  # the cost of its machine: a name from COSTS
    star: dict[str, Any] | None = None
    hints_for: dict[str, int] | None = None  # for a right program that is "slow" or "large": the hint to begin with
    star_hint: str = ""  # a question for whoever has passed and has no star
    words: tuple[str, ...] = ()  # the features (operations and options) that it grants, and most puzzles do not
    teaches: tuple[str, ...] = ()  # the methods of models and tensors that its notebook is the first to write
    tensor: int = 1  # of a layout with generators: in how many pieces these have a weight
    begins_with: str = ""  # the puzzle whose answer is a good beginning, if it is not the one before
    idea: str = ""  # what it is about, in a sentence of the overview
    comes_after: int | None = None  # of a program to be repaired the number of the puzzle that it is taken after
    variant: str = ""  # of a variant the seed that it was drawn from

    @property
    def unit(self) -> Unit:
        """The unit of its times."""
        return cost_named(self.cost).time_unit

    @property
    def size_unit(self) -> SizeUnit:
        """The unit of its sizes."""
        return cost_named(self.cost).size_unit

    def scored(self, time: float, memory: Elements | float) -> tuple[float, Any]:
        """Return time and memory as they count: exactly in ticks and elements, with two digits in seconds and bytes."""
        return self.unit.scored(time), self.size_unit.scored(memory)

    def listed(self, time: float, memory: Elements | float) -> tuple[float, int]:
        """Return figures that count as a frontier lists them: rounded up to millionths of a tick and whole elements."""
        up = round(time, 6) if self.unit is TICKS else time
        return up if up >= time else round(up + 1e-6, 6), ceil(memory)

    def describe(self, time: float, memory: Elements | float) -> tuple[str, str]:
        """Return time and memory with their units."""
        return self.unit.lasting(time), self.size_unit.describe(memory)

    def brief(self, time: float, memory: Elements | float) -> tuple[str, str]:
        """Return time and memory for a table of ticks and elements. Other units are written out."""
        if self.unit is not TICKS:
            return self.describe(time, memory)
        return TICKS.brief(time), self.size_unit.show(memory)

    @property
    def heading(self) -> str:
        """The number and the title."""
        return f"puzzle {self.number}: {self.title}"

    @property
    def repair(self) -> bool:
        """Whether it is a program to be repaired. These share a notebook."""
        return self.file == "repairs"

    def is_called(self, name: object) -> bool:
        """Return whether that is its name or its number: 4 or "4", "R1" or "r1"."""
        return name == self.name or str(name).upper() == str(self.number)

    def has_star(self, time: float, memory: Elements | float) -> bool:
        """Return whether these figures of a pass are within the star's."""
        return self.star is not None and time <= self.star["time"] and memory <= self.star["memory"]

    def beats_all(self, time: float, memory: Elements) -> bool:
        """Return whether nothing known is as fast in so little memory."""
        time, memory = self.listed(time, memory)
        return not any(point["time"] <= time and point["memory"] <= memory for point in self.frontier)


@cache
def puzzles() -> dict[str, Puzzle]:
    """Return all puzzles by name, in order."""
    return {name: Puzzle(**spec) for name, spec in kept("specs.json").items()}


FEATURES = {
    SLICES: "slices of activations",
    LISTS: "lists of tensors in one call",
    HOSTS: "hosts",
    AXES: "collectives over several axes at once",
}
"""The names of features that are not keywords or operations."""


def subject_of(feature: str) -> Puzzle | None:
    """Return the puzzle that is about a feature, which is the first that grants it."""
    return next((puzzle for puzzle in puzzles().values() if feature in puzzle.words), None)


def kept(name: str) -> dict[str, Any]:
    """Return one of the tables that the build writes into lib."""
    if name not in _read:
        _read[name] = _fresh(name)
    return _read[name]


def _fresh(name: str) -> dict[str, Any]:
    """Return a table as it is in its file."""
    text = texts.get(name) or files("lib").joinpath(name).read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


_written = cache(_fresh)  # which nobody may change: to read all again took a verdict 3 percent
texts: dict[str, str] = {}
"""Of tables to use instead."""
_read: dict[str, dict[str, Any]] = {}
"""The tables that were read."""


def forget() -> None:
    """Clear the caches of all tables, so that they are read again."""
    puzzles.cache_clear()
    _written.cache_clear()
    _read.clear()


def changed_table(puzzle: Puzzle) -> str:
    """Return the name of a table that is in memory no longer what its file said, as far as it was read, or an empty
    text: in a notebook, whoever is graded could change them. ``puzzle``: one that was taken before."""
    fresh = {name: _written(name) for name in {"specs.json", *_read}}
    known = {name: Puzzle(**spec) for name, spec in fresh["specs.json"].items()}
    if puzzle != known[puzzle.name] or puzzles() != known:
        return "lib/specs.json"
    return next((f"lib/{name}" for name, table in _read.items() if table != fresh[name]), "")


def find(name: object) -> Puzzle:
    """Return the puzzle of that name or number. Raise PuzzleError, which names the nearest one, for any other."""
    known = puzzles()
    for puzzle in known.values():
        if puzzle.is_called(name):
            return puzzle
    near = get_close_matches(str(name), known, n=1)
    problem = f"there is no puzzle {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    names = ", ".join(f"{puzzle.name} ({puzzle.number})" for puzzle in known.values())
    raise PuzzleError(problem, expected=f"a name or a number: {names}")


def before(puzzle: Puzzle) -> Puzzle | None:
    """Return the puzzle whose answer is a good beginning for this one, if there is one."""
    if puzzle.begins_with:
        return find(puzzle.begins_with)
    return None if puzzle.repair else _neighbor(puzzle, -1)


def after(puzzle: Puzzle) -> Puzzle | None:
    """Return the next puzzle of the course, or None after the last."""
    return _neighbor(puzzle, 1)


def opened_by(puzzle: Puzzle) -> list[Puzzle]:
    """Return the programs to be repaired that are to be taken after this puzzle."""
    return [other for other in puzzles().values() if other.repair and other.comes_after == puzzle.number]


def due(solved: Collection[str]) -> list[Puzzle]:
    """Return the puzzles to go on with: the first of the course that is not among the ``solved`` ones, and the programs
    to be repaired whose turn has come."""
    left = [puzzle for puzzle in puzzles().values() if puzzle.name not in solved]
    done = {puzzle.number for puzzle in puzzles().values() if puzzle.name in solved}
    following = [puzzle for puzzle in left if not puzzle.repair][:1]
    return following + [puzzle for puzzle in left if puzzle.repair and puzzle.comes_after in done]


def _neighbor(puzzle: Puzzle, step: int) -> Puzzle | None:
    """Return the puzzle ``step`` places further on, among the puzzles or among the programs to be repaired."""
    all_of_them = [other for other in puzzles().values() if other.repair == puzzle.repair]
    place = [other.name for other in all_of_them].index(puzzle.name) + step
    return all_of_them[place] if 0 <= place < len(all_of_them) else None


# -- the costs that a spec may name -----------------------------------------------------------

_LONG_CONTEXT = RingCost(  # half of a forward is attention, as in Llama 3 8B at 53,000 tokens
    forward=4,
    project=0.5,
    attend=2,
    rest=1.5,
    backward=8,
    backward_rest=1.5,
    backward_attend=4,
    backward_project=2.5,
    activation_elements=4 * HIDDEN * LENGTH,
    keys_values_elements=2 * HIDDEN * LENGTH,  # four heads of queries share one of these
    attended_elements=8 * HIDDEN * LENGTH,
    latency=0.01,
    bandwidth=655_360,
)
_EXPERTS = ExpertRingCost(backward=2, loads=(4, 2, 2, 2, 2, 2, 1, 1), chosen=2, latency=0.02, bandwidth=1_310_720)
COSTS: Mapping[str, Cost] = {
    "default": Cost(),
    "ring": RingCost(),
    "free_links": Cost(send=0, send_across=0, receive=0),
    "even_thirds": Cost(backward=2, send=0, send_across=0, receive=0),  # F = B = W, as of a large layer
    "pairs": Cost(backward=2, send=0, send_across=0, receive=0, overlapped=1),  # and a forward hides behind a backward
    "two_halves": Cost(allreduce=0.6, allreduce_across=3.0),  # an all-reduce is a reduce-scatter and an all-gather
    "long_gathers": Cost(backward=2, collective=0.8),  # between nodes, with few tokens
    "inner_activations": Cost(
        # of a layer of GPT-3, whose input takes 2sbh bytes: 114sbh in all, and 34sbh without the scores of attention
        backward=2,
        saved_elements=56 * HIDDEN * LENGTH,
        saved_selective_elements=16 * HIDDEN * LENGTH,
        recompute=1,
        recompute_selective=0.03,
    ),
    "quick_messages": Cost(send=0.1, receive=0.1),  # for pipelines with many thin stages
    "long_sequences": Cost(activation_elements=4 * HIDDEN * LENGTH, allreduce=0.6),  # an all-reduce is two halves
    "slow_host": Cost(  # of an 8B model on a card with 24 GB, half of 8,192 tokens at a time
        backward=3,  # the layer is computed again for it
        receive=0,
        activation_elements=HIDDEN * LENGTH // 8,
        host_update=5.5,
    ),
    "long_hops": RingCost(backward=2, latency_across=0.1, bandwidth_across=245_760),  # bytes as long as a backward
    "two_speeds": RingCost(  # inside a node, and between nodes
        backward=2, latency=0.03, bandwidth=2_457_600, latency_across=0.1, bandwidth_across=245_760
    ),
    "one_card": Cost(  # a node of 100 Gbit/s: in a gather across nodes, the whole weight goes through its card
        backward=3,  # the layer is computed again for it
        collective=0.4,
        collective_across=8,
        activation_elements=HIDDEN * LENGTH // 8,
        allreduce=0.8,
        allreduce_across=16,
    ),
    "gpt_3_on_a100": A100_MEGATRON.cost(  # in seconds and bytes; a rank is a node of eight
        GPT_175B, micro_batch=2, tensor=8, sequence_parallel=True, recompute="selective", gradients=4, reduced=2
    ),
    "long_context": _LONG_CONTEXT,
    "all_heads": replace(_LONG_CONTEXT, keys_values_elements=8 * HIDDEN * LENGTH, bandwidth=2_621_440),
    "experts": _EXPERTS,
    "far_experts": replace(_EXPERTS, bandwidth=327_680),  # an all-to-all takes nearly as long as a forward
    "far_nodes": Cost(collective_across=4),  # a sum across nodes takes as long as four forwards
    "warm_rank": Cost(uneven=Uneven(slow={0: 1.1})),
    "wires": WireCost(backward=2, latency=0.02, bandwidth=131_072),  # a gradient takes two ticks, as its backward
    "small_messages": WireCost(latency=0.1, bandwidth=5_242_880),  # a gradient takes half as long as its hop
    "orthogonal": Cost(orthogonalize=2),
    "large_weights": Cost(weight_elements=8 * HIDDEN * HIDDEN, collective=0.8, send=0.1, receive=0.1),
}


def cost_named(name: str | Cost) -> Cost:
    """Return the cost of that name, or with other prices; or the cost itself. Raise PuzzleError for a name that is none
    of the known ones.

    >>> cost_named("default(backward=2)").backward
    2
    """
    if isinstance(name, Cost):
        return name
    base, _, others = name.rstrip(")").partition("(")
    one_of_names("cost", base, tuple(COSTS))
    return _with_prices(base, others) if others else COSTS[base]


@cache
def _with_prices(base: str, others: str) -> Cost:
    prices = dict(pair.split("=") for pair in others.split(", "))
    return replace(COSTS[base], **{name: json.loads(price) for name, price in prices.items()})


def machine_of(size: Size, cost: str | Cost) -> Shape:
    """Return the machine of a size, at a cost (of that name)."""
    names = ("mesh", "node_size", "hosts", "experts", "links", "tokens", "quiet", "tied")
    given = {name: size[name] for name in names if name in size}
    # Prices may know the size of a node.
    return Shape.of(size["ranks"], cost=cost_named(cost), muon=size.get("train") == TRAINED[2], **given)


def cost_source(name: str) -> str:
    """Return the cost of that name as source code.

    >>> cost_source("ring")
    'RingCost()'
    """
    cost = cost_named(name)
    if isinstance(cost, RealCost):
        known = {thing: name for name, thing in vars(presets).items() if isinstance(thing, (Hardware, Transformer))}
        return f"{known[cost.cluster]}.cost({known[cost.model]}, {', '.join(cost.chosen())})"
    own = [f"{f.name}={price!r}" for f in fields(cost) if (price := getattr(cost, f.name)) != f.default]
    return f"{type(cost).__name__}({', '.join(own)})"
