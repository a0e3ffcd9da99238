"""Other ways to write right answers: updates at the end or at once, other orders of work, other sizes of buckets."""

from collections.abc import Iterator

from lib import Model

from . import Program, changed


async def two_chunks(model: Model) -> None:
    """Interleaved 1F1B with two stages of neighboring layers each, as Megatron counts."""
    p, r, m = model.RANKS, model.rank, model.BATCHES
    size = model.LAYERS // (2 * p)  # layers in a chunk: there are two on each rank
    chunk = [range((c * p + r) * size, (c * p + r + 1) * size) for c in (0, 1)]
    for layers in chunk:
        for layer in layers:
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    def nth(k: int, backward: bool) -> tuple[int, int]:  # the k-th piece of work, as Megatron counts
        c = k % (2 * p) // p
        return 1 - c if backward else c, k // (2 * p) * p + k % p

    async def forward(k: int) -> None:
        c, mb = nth(k, False)
        start = r == 0 and c == 0
        model.activations[chunk[c][0], mb] = model.get_activation([mb]) if start else await model.receive((r - 1) % p)
        for layer in chunk[c]:
            model.activations[layer + 1, mb] = model.forward(layer, model.activations[layer, mb], model.weights[layer])
        if r < p - 1 or c == 0:
            await model.pass_to((r + 1) % p, model.activations.pop((chunk[c][-1] + 1, mb)))

    async def backward(k: int) -> None:
        c, mb = nth(k, True)
        last = r == p - 1 and c == 1
        grad = model.loss(model.activations.pop((model.LAYERS, mb))) if last else await model.receive((r + 1) % p)
        for layer in reversed(chunk[c]):
            model.grad_activations["in"] = grad
            new, grad = model.backward(layer, model.activations.pop((layer, mb)), grad, model.weights[layer])
            del model.grad_activations["in"]
            model.grad_weights[layer] = model.grad_weights.pop(layer) + new if mb else new
        if r > 0 or c == 1:
            await model.pass_to((r - 1) % p, grad)

    warm_up = min(2 * (p - 1 - r) + p, 2 * m)
    for k in range(warm_up):
        await forward(k)
    for k in range(warm_up, 2 * m):
        await forward(k)
        await backward(k - warm_up)
    for k in range(2 * m - warm_up, 2 * m):
        await backward(k)
    for layer in [*chunk[0], *chunk[1]]:
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])


async def in_one_queue(model: Model) -> None:
    """Prefetching with one list of layers, up and down: the last is gathered twice in a row."""
    top, order = model.LAYERS - 1, [*range(model.LAYERS), *reversed(range(model.LAYERS))]
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    calls, sums = (model.allgather(model.weights[layer], layer) for layer in order), {}
    coming, model.activations[0] = next(calls), model.get_activation([model.rank])
    for turn, layer in enumerate(order):
        model.weights["whole"] = await coming
        coming = next(calls, None)
        weight = model.weights["whole"]
        if turn <= top:
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
            if turn == top:
                model.grad_activations[top + 1] = model.loss(model.activations.pop(top + 1))
            del model.weights["whole"]
            continue
        del model.weights["whole"]
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        sums[layer] = model.scatterreduce(grad, layer)
        del weight, grad
        if layer + 1 in sums:
            model.grad_weights[layer + 1] = await sums.pop(layer + 1)
    del model.grad_activations[0]
    model.grad_weights[0] = await sums.pop(0)
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])


_UPDATE = "        model.weights[layer], model.opt_states[layer] = model.update("
_LAYERS = "    for layer in range(model.LAYERS):\n"
_SIX = "if len(model.grad_weights) == 6 or layer == 0:"
_BY_FORMULA = """if (
            layer == 0 or
            len(model.grad_weights) * round((2 / 3 * model.LAYERS) ** 0.5 + 0.5) >= model.LAYERS
        ):"""
_SUM = 'await model.scatterreduce(model.grad_weights.pop(layer), layer, axis="shard")\n'
_ADDED = """            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
"""
_PIECE = "        piece = model.weights[layer].shard(model.rank, model.RANKS)\n"
_GATHER = "        model.weights[layer] = await model.allgather(piece, layer)\n"
_ANSWER = "        model.set_final_weight(layer, model.weights[layer])\n"
_AT_ONCE = f"""        gathers[layer] = model.allgather(piece, layer)
    for layer in gathers:
        model.weights[layer] = await gathers[layer]
{_ANSWER}"""
_ALL_ADDED = """        for mb in mine:
            grad = model.grad_weights.pop((layer, mb))
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
"""
_KEPT = """\
acts["att", layer], acts["kv", layer] = model.project(layer, inp, weight)
        acts["kv"] = acts["kv", layer]
"""
_UPDATED = "        model.weights[layer], model.opt_states[layer] = model.update("
_AT_THE_END = "\n    for layer in range(model.LAYERS):\n" + _UPDATED
_HALF = "if layer < model.LAYERS // 2:"
_POPPED = 'acts["kv"] = acts.pop(("kv", layer))'
_SHARE = "int(again * model.LAYERS)"
_UPDATED_WHOLE = """        piece, model.opt_states[layer] = model.update(
            layer, grad, piece, model.opt_states[layer]
        )
"""
_IN_HALVES = """        model.grad_weights[layer], model.weights[layer] = grad, piece
        for half in range(2):
            parts = (model.weights, model.opt_states)
            weight, state = (part[layer].shard(half, 2) for part in parts)
            new = model.update(layer, model.grad_weights[layer].shard(half, 2), weight, state)
            for part, one in zip(parts, new, strict=True):
                part[layer, half] = one
        del model.grad_weights[layer], model.weights[layer]
        piece, model.opt_states[layer] = (
            part.pop((layer, 0)).combine(part.pop((layer, 1))) for part in parts
        )
"""
WAYS: dict[str, list[str | dict[str, str] | tuple[str, dict[str, str]]]] = {
    "ddp": ["repair_quiet"],  # all sums first
    "repair_bargain": ["fsdp"],
    "repair_groups": ["hsdp"],
    "checkpointing": [{_HALF: "if layer % 2:", _AT_THE_END: _UPDATED}],  # each is updated at once
    "zero1": [("zero1_overlap", {_UPDATED_WHOLE: _IN_HALVES})],
    "zero2": [
        {_ADDED: "            model.grad_weights[layer, mb] = grad\n", _LAYERS + _PIECE: _LAYERS + _ALL_ADDED + _PIECE},
        {_LAYERS + _PIECE: "    gathers = {}\n" + _LAYERS + _PIECE, _GATHER + _ANSWER: _AT_ONCE},
        ("zero2_overlap", {_UPDATED_WHOLE: _IN_HALVES}),
    ],
    "ring_attention": [
        {
            _KEPT: 'acts["att", layer], acts["kv"] = model.project(layer, inp, weight)\n',
            _POPPED: '_, acts["kv"] = model.project(layer, inp, weight)',
        },  # the queries are kept, and keys and values made again
        *[  # so many of the lowest layers, and no share of all, are made again
            ("hops_hidden", {"again: float": "again: float = 0", _SHARE: f"{number}"}) for number in (2, 4, 5, 6, 7)
        ],
    ],
    "breadth_first": [  # updates at the end
        {
            f"        grad = {_SUM}{_UPDATE}": f"        model.grad_weights[layer] = {_SUM}"
            f"    for layer in mine:\n{_UPDATE}",
            "layer, grad, model.weights": "layer, model.grad_weights.pop(layer), model.weights",
        }
    ],
    "buckets": [{_SIX: _BY_FORMULA}],
}
"""Of each puzzle other programs: their names, or edits of the solution or of a program of that name."""


def _programs() -> Iterator[Program]:
    for puzzle, ways in WAYS.items():
        for at, way in enumerate(ways):
            base, edits = (way, {}) if isinstance(way, str) else way if isinstance(way, tuple) else ("", way)
            yield changed(puzzle, f"another way, {at}", *edits.items(), base=base)


HONEST: list[Program] = [*_programs()]
