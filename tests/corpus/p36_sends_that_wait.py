"""Puzzle 36, sends that wait: honest styles, and natural mistakes, most of which hang."""

from __future__ import annotations

from . import changed

SENDS, CAME = "[(rank, out) for rank in to[do]]", "source.get(then, [])"
TALK = f"came = await model.exchange({SENDS}, {CAME})"
TO, SOURCE = "to, source = {forward: below, backward: above}", "{forward: above, backward: below}"
AHEAD = "ahead = min(model.RANKS - model.rank, model.BATCHES)"
EACH = f"for rank, one in {SENDS}:\n            await model.pass_to(rank, one)\n        came = [await model.receive(rank) for rank in {CAME}]"
START = f"sent = [model.pass_to(rank, one) for rank, one in {SENDS}]\n        came = [model.receive(rank) for rank in {CAME}]"
BOTH = START + "\n        for one in sent:\n            await one\n        came = [await one for one in came]"
HANGS = "its first call is the"

HONEST = [
    changed("sends_that_wait", "an exchange in place of each call", (TALK, f"call = model.exchange({SENDS}, {CAME})\n        came = await call")),
    changed("sends_that_wait", "one forward more", ("sooner: bool = False", "sooner: bool = True"), base="in_turns"),
]  # fmt: skip

MISTAKES = [
    changed("sends_that_wait", "each call awaited", (TALK, EACH), says=HANGS),
    changed("sends_that_wait", "both started, then awaited", (TALK, BOTH), says=HANGS),
    changed("sends_that_wait", "received in a call of its own", (TALK, f"await model.exchange({SENDS})\n        came = await model.exchange([], {CAME})"), says=HANGS),
    changed("sends_that_wait", "received before anything is sent", (TALK, f"came = await model.exchange([], {CAME})\n        await model.exchange({SENDS})")),
    changed("sends_that_wait", "only even ranks exchange", (TALK, f"if model.rank % 2:\n            for rank, one in {SENDS}:\n                await model.pass_to(rank, one)\n        came = await model.exchange([] if model.rank % 2 else {SENDS}, {CAME})"), says="over the target"),
    changed("sends_that_wait", "gradients go down", (TO, "to, source = {forward: below, backward: below}")),
    changed("sends_that_wait", "inputs come from below", (SOURCE, "{forward: below, backward: below}")),
    changed("sends_that_wait", "received from anyone", (TALK, BOTH.replace("receive(rank)", "receive()")), says="a receive says from whom"),
    changed("sends_that_wait", "one forward too few in the middle", (AHEAD, "ahead = min(model.RANKS - model.rank - (0 < model.rank < model.RANKS - 1), model.BATCHES)"), says="over the target"),
    changed("sends_that_wait", "the first rank begins with one forward too many", (AHEAD, "ahead = min(model.RANKS - model.rank + 2 * is_first, model.BATCHES)"), says=HANGS),
    changed("sends_that_wait", "the last gradient stays", (TALK, TALK.replace("to[do]]", "to[do] if then]"))),
    changed("sends_that_wait", "all forwards first", (AHEAD, "ahead = model.BATCHES"), says="over the target"),
    changed("repair_ring", "the send awaited before the receive is posted", ("coming = model.receive(before)\n        await sending\n", "await sending\n        coming = model.receive(before)\n"), says=HANGS),
    changed("repair_handshake", "sends awaited before receives are posted", ("        coming = [model.receive(rank) for rank in sources]\n", ""), ("return [await call for call in coming]", "return [await model.receive(rank) for rank in sources]"), says=HANGS),
    changed("repair_deferred", "one receive late", ("1RECV_F1, 1SEND_F0", "1SEND_F0, 1RECV_F1"), says=HANGS),
    changed("repair_crosswise", "every second rank the other way", ('halves = ["low", "high"]', 'halves = ["low", "high"][:: 1 - 2 * ((model.axis_index("row") + model.axis_index("column")) % 2)]'), says="deadlock"),
    changed("sends_that_wait", "not awaited", (TALK, f"call = model.exchange({SENDS}, {CAME})\n        came = await call if then else []")),
    changed("repair_rows", "no sum over the slices", ("            grad = await model.allreduce(grad, layer)\n", "            pass\n")),
    changed("repair_ends", "only one of both adds up", ("        sums[0] = sums[0] + await model.receive(src=other)\n", "        theirs = await model.receive(src=other)\n        sums[0] = sums[0] + theirs if rank else sums[0]\n")),
    changed("repair_ends", "the stages the other way round", ("RANKS, model.rank,", "RANKS, model.RANKS - 1 - model.rank,"), ("src=rank - 1", "src=ranks - rank"), ("pass_to(rank + 1", "pass_to(ranks - 2 - rank"), ("src=rank + 1", "src=ranks - 2 - rank"), ("pass_to(rank - 1", "pass_to(ranks - rank"), ("other = ranks - 1 - rank", "other = rank"), says="begins without the weight of layer 1"),
    changed("repair_copies", "all sums over everybody", ("grad = await model.allreduce(grad, layer, axis=axis)", "grad = await model.allreduce(grad, layer)")),
    changed("repair_mean", "nothing is divided", ("of_weight / model.RANKS", "of_weight")),
    changed("repair_safe", "all sums over everybody", ('grad = await model.allreduce(grad, layer, axis="data")', "grad = await model.allreduce(grad, layer)")),
]  # fmt: skip
