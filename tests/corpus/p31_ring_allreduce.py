"""Puzzles 31 and 32, sums by hand: honest styles, natural mistakes, and ways round the work."""

from __future__ import annotations

from . import Program, changed, function, whole

SUM = "        await sum_up(layer)\n"
FIRST = "send = model.pass_to((r + 1) % n, grads.pop((layer, (r - step) % n)))"
ADDED = "grads[layer, i] = grads[layer, i] + await model.receive((r - 1) % n)"
SECOND = "send = model.pass_to((r + 1) % n, grads[layer, (r + 1 - step) % n])"
STORED = "grads[layer, (r - step) % n] = await model.receive((r - 1) % n)"
ROUND = "        for step in range(n - 1):  # the sums go round"
JOINED = "grads[layer] = grads[layer].combine(grads.pop((layer, i)))"
INPUT = "model.get_activation([model.rank])"
FINAL = "        model.set_final_weight(layer, model.weights[layer])"
UP = "while step < n and r % (2 * step) == 0:"
SENT = "            await model.pass_to(r - step, grads.pop(layer))\n"
CAME = "            grads[layer] = await model.receive(r - step)\n"
FROM_ABOVE = "                grads[layer] = grads[layer] + await model.receive(r + step)\n"


def summed(puzzle: str, name: str, body: str) -> Program:
    """The solution with another sum: ``n``, ``r`` and ``grads`` are as there."""
    _, rest = function(puzzle).split("    async def sum_up(layer: int) -> None:\n")
    return changed(puzzle, name, (rest.partition("\n\n    for layer in range")[0], body.strip("\n")))


DOUBLED = """
        apart = 1
        while apart < n:
            send = model.pass_to((r + apart) % n, grads[layer])
            grads[layer] = grads[layer] + await model.receive((r - apart) % n)
            await send
            apart *= 2
"""
PARTNERS = DOUBLED.replace("(r + apart) % n", "r ^ apart").replace("(r - apart) % n", "r ^ apart")

HONEST = [
    changed("ring_allreduce", "each piece to its owner, and its sum to all", ("early: Sequence[int]", "early=()"), base="pieces_to_owners"),
    whole("ring_allreduce", "halves, quarters, eighths, and back", f"{function('by_halves')}\n\n\n{function('trained').replace('total: Sum', 'total=by_halves')}\n\n\nasync def ring_allreduce(model):\n    return await trained(model)\n"),
    changed("ring_allreduce", "the ring goes to the left", ("(r + 1) % n, grads.pop((layer, (r - step) % n))", "(r - 1) % n, grads.pop((layer, (r + step) % n))"), ("i = (r - step - 1) % n", "i = (r + step + 1) % n"), ("model.receive((r - 1) % n)", "model.receive((r + 1) % n)"), ("model.pass_to((r + 1) % n, grads[layer, (r + 1 - step) % n])", "model.pass_to((r - 1) % n, grads[layer, (r - 1 + step) % n])"), ("grads[layer, (r - step) % n] = await", "grads[layer, (r + step) % n] = await")),
    changed("ring_allreduce", "from anyone, as only the left one sends", ("model.receive((r - 1) % n)", "model.receive()")),
    changed("ring_allreduce", "each send is awaited at once", (FIRST, FIRST.replace("send =", "await")), (SECOND, SECOND.replace("send =", "await")), ("            await send\n", "")),
    changed("small_messages", "from anyone", ("model.receive(r + step)", "model.receive()")),
    changed("small_messages", "both partners send", ("kept: int", "kept=2"), ("meanwhile: Callable[[], None]", "meanwhile"), ("partial(", "functools.partial("), base="exchanged"),
    whole("small_messages", "halves", f"{function('by_halves')}\n\n\n{function('trained').replace('total: Sum', 'total=by_halves')}\n\n\nasync def small_messages(model):\n    return await trained(model)\n"),
]  # fmt: skip

MISTAKES = [
    changed("ring_allreduce", "the machine's all-reduce", (SUM, "        grads[layer] = await model.allreduce(grads.pop(layer), layer)\n")),
    changed("ring_allreduce", "the machine's two halves", (SUM, "        grads[layer] = await model.scatterreduce(grads.pop(layer), layer)\n        grads[layer] = await model.allgather(grads.pop(layer), layer)\n")),
    summed("ring_allreduce", "doubling, which counts some twice at 6 ranks, and is slow at 8", DOUBLED),
    changed("ring_allreduce", "no sum at all", (SUM, "")),
    changed("ring_allreduce", "only the first half: one complete piece on each rank", (ROUND, ROUND.replace("n - 1", "0"))),
    changed("ring_allreduce", "the first round is a step short", ("for step in range(n - 1):  # each", "for step in range(n - 2):  # each")),
    changed("ring_allreduce", "as many steps as ranks", ("for step in range(n - 1):  # each", "for step in range(n):  # each")),
    changed("ring_allreduce", "the pieces that go round are a place off", (SECOND, SECOND.replace("r + 1 - step", "r - step")), (STORED, STORED.replace("r - step", "r - step - 1"))),
    changed("ring_allreduce", "each rank sends its own piece all the time", (FIRST, FIRST.replace("grads.pop((layer, (r - step) % n))", "grads[layer, r]"))),
    changed("ring_allreduce", "what comes takes the place of the piece", (ADDED, ADDED.replace("grads[layer, i] + await", "await"))),
    changed("ring_allreduce", "sent to the left, and received from there", ("model.receive((r - 1) % n)", "model.receive((r + 1) % n)")),
    changed("ring_allreduce", "receive first, then send", (FIRST, "got = await model.receive((r - 1) % n)\n            " + FIRST), (ADDED, ADDED.replace("await model.receive((r - 1) % n)", "got"))),
    changed("ring_allreduce", "eight ranks, whatever their number", ("n, r, grads = model.RANKS", "n, r, grads = 8")),
    changed("ring_allreduce", "all micro-batches on every rank, and no messages", (INPUT, "model.get_activation(range(model.BATCHES))"), (SUM, "")),
    changed("ring_allreduce", "pieces are not put together", (JOINED, JOINED.replace("grads[layer].combine(grads.pop((layer, i)))", "grads.pop((layer, i))"))),
    # -- round the work -------------------------------------------------------------------------------------
    changed("ring_allreduce", "gradients made up instead of summed", (SUM, "        grads[layer] = grads[layer] + model.fake_grad(layer, [mb for mb in range(model.BATCHES) if mb != r])\n")),
    changed("ring_allreduce", "rank 0 sends its updated weights to all", (FINAL, "        for other in range(1, n):\n            if r == 0:\n                await model.pass_to(other, model.weights[layer])\n            elif r == other:\n                model.weights[layer] = await model.receive(0)\n" + FINAL)),
    # -- puzzle 32 -------------------------------------------------------------------------------------------
    summed("small_messages", "doubling to the right, which counts some twice at 5 ranks", DOUBLED),
    summed("small_messages", "partners, whatever the number of ranks", PARTNERS),
    summed("small_messages", "partners, where there is one", PARTNERS.replace("            send", "            if r ^ apart >= n:\n                apart *= 2\n                continue\n            send")),
    changed("small_messages", "up, and never back", (SENT, SENT.replace("grads.pop(layer)", "grads[layer]")), (CAME, "            return\n"), ("        while step > 1:\n", "        while False:\n")),
    changed("small_messages", "the total is added to the own sum", (SENT, SENT.replace("grads.pop(layer)", "grads[layer]")), (CAME, CAME.replace("= await", "= grads[layer] + await"))),
    changed("small_messages", "every rank with an even step receives", (UP, "while step < n and r % step == 0:")),
    changed("small_messages", "eight ranks, whatever their number", (UP, UP.replace("step < n", "step < 8"))),
    changed("small_messages", "no check that there is a partner", (f"            if r + step < n:\n{FROM_ABOVE}", FROM_ABOVE[4:])),
    changed("small_messages", "back in the order of the way up", ("        while step > 1:\n            step //= 2\n", "        for step in [1 << at for at in range(step.bit_length() - 1)]:\n")),
    changed("small_messages", "all send to rank 0, one after the other", ("        step = 1\n        while step < n and r % (2 * step) == 0:\n            if r + step < n:\n                grads[layer] = grads[layer] + await model.receive(r + step)\n            step *= 2\n", "        step = r or n\n        for other in range(1, n) if r == 0 else ():\n            grads[layer] = grads[layer] + await model.receive(other)\n"), ("        while step > 1:\n            step //= 2\n            if r + step < n:\n                await model.pass_to(r + step, grads[layer])\n", "        for other in range(1, n) if r == 0 else ():\n            await model.pass_to(other, grads[layer])\n")),
    changed("small_messages", "the machine's all-reduce", (SUM, "        grads[layer] = await model.allreduce(grads.pop(layer), layer)\n")),
    changed("small_messages", "updated weights go round as well", (FINAL, "        if n > 1:\n            send = model.pass_to((r + 1) % n, model.weights[layer])\n            model.weights[layer] = await model.receive((r - 1) % n)\n            await send\n" + FINAL)),
]  # fmt: skip
