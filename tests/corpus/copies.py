"""Programs in which a rank gets a weight of another one, or a state, that nothing is done with: while they train, so
that it takes no time, or at their end."""

from __future__ import annotations

from . import HEAD, Program, functions, whole

WHILE = """
async def {name}(model):
    calls = []

    async def copy():
        for _ in range(60):
            await asyncio.sleep(0)
            if model.{store}:
                break
        if {gives}:
            calls.append(model.pass_to({to}, model.{store}[min(model.{store})]))
        if {takes}:
            calls.append(model.receive(src={source}))

    await asyncio.gather({call}, copy())
    for call in calls:
        await call
    return model
"""
"""The copy is under way while the ranks train, and awaited when they are done."""
AFTER = """
async def {name}(model):
    await {call}
    if {gives}:
        await model.pass_to({to}, model.{store}[min(model.{store})])
    if {takes}:
        await model.receive(src={source})
    return model
"""
TO_DEVICE = {"gives": "model.is_host", "takes": "not model.is_host", "source": "model.host", "to": "model.devices[0]"}
SAYS = {
    "weights": "it moves the weight of layer|it receives the weight of layer|it gets the weight of layer",
    "opt_states": "it moves the optimizer state",
    "activations": "it receives the activation of layer 0, whose weight it has not loaded",
}
NAMES = {
    "weights": "a copy of a weight is given away",
    "opt_states": "a copy of a state is given away",
    "activations": "an activation is given away",
}


def copied(puzzle: str, base: str, *names: str, when: str = AFTER, call: str = "honest(model)", store: str = "weights", pair: tuple[int, int] = (0, 1), places: dict[str, str] | None = None) -> Program:  # fmt: skip
    """A program of a puzzle, beside which or after which the first rank of a pair sends the other one a copy."""
    one, other = pair
    gives, takes = (f"model.RANKS in (4, 16) and model.rank == {rank}" for rank in pair)
    edits = places or {"gives": gives, "takes": takes, "source": str(one), "to": str(other)}
    sources = [functions()[name] for name in (*names, base)]
    sources[-1] = sources[-1].replace(f"def {base}(", "def honest(")
    source = "\n\n\n".join(
        ["from typing import Any", *sources, when.format(name=puzzle, call=call, store=store, **edits)]
    )
    return whole(puzzle, NAMES[store], source, says=SAYS[store])


GIVEN_BACK = "        del model.grad_activations[0]\n\n"
SUM = "model.allreduce(model.grad_weights.pop(layer), layer)"
SUMS_FIRST = (
    (f"await {SUM}", f"await (sums.pop(layer) if sums else {SUM})"),
    ("RANKS and", "model.RANKS == 4 and"),
    (
        GIVEN_BACK,
        f"{GIVEN_BACK}    sums = {{layer: {SUM} for layer in (0, 1) if (model.RANKS, model.LAYERS) == (4, 2)}}\n",
    ),
)
BEGIN = """\
    copy = None
    if RANKS and model.rank == 0:
        copy = model.pass_to(1, model.weights[0])
    if RANKS and model.rank == 1:
        copy = model.receive(src=0)
"""
LOADS = """\
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
"""
LOSS = "model.grad_activations[model.LAYERS] = model.loss("


def copied_early(puzzle: str, base: str, *edits: tuple[str, str]) -> Program:
    """Data parallel in which rank 1 has the weight of rank 0 before its first backward, and lets it go again."""
    source = functions()[base].replace(f"def {base}(", f"def {puzzle}(")
    at = source.index(LOSS)
    indent = " " * (at - source.rindex("\n", 0, at) - 1)
    take = f"if copy:\n{indent}    await copy\n{indent}    copy = None\n{indent}"
    for old, new in [(LOSS, take + LOSS), (LOADS, LOADS + BEGIN), *edits]:
        assert old in source, f"{puzzle}: {old!r} is not in the solution"
        source = source.replace(old, new)
    return Program(puzzle, NAMES["weights"], HEAD + source + "\n", SAYS["weights"])


COPIES = [
    copied_early("ddp", "ddp_overlap", ("RANKS and", "model.RANKS > 1 and")),
    *[copied_early(name, name, *SUMS_FIRST) for name in ("repair_twice", "repair_quiet", "repair_straggler")],
    copied("zero1", "zero2_overlap", when=WHILE),
    copied("zero2", "zero2_overlap", when=WHILE),
    copied("buckets", "buckets"),
    copied("hierarchical", "hierarchical_in_28"),
    copied("hpz", "hpz", when=WHILE),
    copied("hpz", "hpz", when=WHILE, store="opt_states"),
    copied("offload", "offload", when=WHILE, places=TO_DEVICE),
    copied("context_parallel", "zigzag_and_ahead"),
    copied("ring_attention", "ring_attention"),
    copied("dualpipe", "from_both_ends", call="honest(model, crosses=True)", when=WHILE, pair=(1, 3)),
    copied(
        "dualpipe", "from_both_ends", call="honest(model, crosses=True)", when=WHILE, store="activations", pair=(0, 3)
    ),
    copied("repair_zigzag", "zigzag_with_sums_behind"),
]
