"""What one H100 was measured to do, beside what our prices say.

``h100_2026.csv`` has what was measured for this course on 26 November 2026: one NVIDIA H100 80 GB HBM3 (700 W, driver
580.159, 81,559 MiB), PyTorch 2.11, CUDA 13.0, cuDNN 9.19, in 16 bits, each figure the median of as many calls as take
some tenths of a second. ``layer``: forward and backward of one layer, not compiled (``eager``), compiled, or with
FlashAttention-2 (``flash``), and the bytes that forward leaves. ``step``: a step of 8 layers of Llama 3 8B's size with
32,000 words and AdamW, under FSDP2 on one GPU, or with weights and gradients in 2 bytes and main weights beside them
(``whole``): its peak, and how often the allocator had to make room. ``step foretold``: steps of other models, measured
a day later on another such card, after ours had been written down. ``parts of a step``: the same with forward (and
loss) and backward by themselves. ``loss``: with the head, forward and backward, and its peak. Times are in ms.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lib import Model, Run, run
from lib.real import FUSED, H100_PYTORCH, LLAMA_2_7B, LLAMA_3_8B, LLAMA_3_70B, Cluster, Transformer
from lib.real.layer import FLASH_BACKWARD
from lib.real.prices import RealCost
from lib.record.kinds import MEMORY_KINDS
from tools import foundry
from tools.programs import fsdp_accumulating

FILE = Path(__file__).with_name("h100_2026.csv")
COMPILED = replace(H100_PYTORCH, name="H100 80 GB, PyTorch 2026, compiled", fused=True, loss_bytes=FUSED)
"""Compiled, this PyTorch's loss holds what a fused one does."""
MODELS = {model.name: model for model in (LLAMA_2_7B, LLAMA_3_8B, LLAMA_3_70B)}
STEP = replace(LLAMA_3_8B, layers=8, vocabulary=32000, name="8 layers of Llama 3 8B")
FSDP2 = {"stored": 4, "gradients": 4, "gathered": 2, "reduced": 4}
WHOLE = {"stored": 2, "gradients": 2}
KEPT = {"keep attention": "full"}
"""How we call what is nearest: all is computed again but attention, which is little of a layer here."""


class Line(NamedTuple):
    """A figure that was measured, in ms or bytes, and ours."""

    what: str
    name: str
    measured: float
    ours: float

    @property
    def off(self) -> float:
        """How far ours is off, as a part of what was measured."""
        return self.ours / self.measured - 1


def rows(*sets: str) -> list[dict[str, str]]:
    """Return the rows of these sets."""
    with open(FILE, encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["set"] in sets]


def products(cluster: Cluster = H100_PYTORCH) -> Iterator[Line]:
    """Yield matrix products, from 64 numbers in the smallest dimension to 16,384."""
    for row in rows("product"):
        sizes = [int(row[name]) for name in ("rows", "wide", "high")]
        ours = 1e3 * cluster.product_takes(*sizes)
        yield Line("matrix products", " x ".join(map(str, sizes)), float(row["ms"]), ours)


def attention(cluster: Cluster = H100_PYTORCH, how: str = "cudnn", least: int = 4096) -> Iterator[Line]:
    """Yield attention of so many tokens or more, forward and backward, by the kernels of one library."""
    said = {"cudnn": "cuDNN", "flash": "FlashAttention-2"}[how]
    for row in rows("attention"):
        batch, tokens, heads, width = (int(row[name]) for name in ("batch", "sequence", "heads", "head_width"))
        if row["how"] != how or tokens < least:
            continue
        flops = 2 * batch * heads * tokens**2 * width
        for backward, times in ((False, 1.0), (True, FLASH_BACKWARD)):
            way = "backward" if backward else "forward"
            ours = 1e3 * cluster.attention_takes(times * flops, backward)
            yield Line(f"attention, {said}, {way}", f"{tokens:,} tokens", float(row[f"{way}_ms"]), ours)


def model_of(name: str, tokens: int) -> Transformer:
    """Return a model by its name in the file, at a length."""
    if name in MODELS:
        return replace(MODELS[name], sequence=tokens)
    layers, hidden, heads = foundry.SIZES[name.removeprefix("MPT ")]
    return Transformer(layers, hidden, heads, tokens, 50368, tied=True, attention="flash", name=name)


def layers(how: str = "eager", cluster: Cluster | None = None) -> Iterator[Line]:
    """Yield whole layers: seconds of forward and backward, and the bytes that forward leaves."""
    cluster = cluster or {"eager": H100_PYTORCH, "compiled": COMPILED}[how]
    said = "compiled" if how == "compiled" else "not compiled"
    for row in rows("layer"):
        if row["how"] != how:
            continue
        model, batch = model_of(row["name"], int(row["sequence"])), int(row["batch"])
        cost, name = cluster.cost(model, micro_batch=batch), f"{row['name']}, {batch} x {row['sequence']}"
        for way, ours in (("forward", cost.forward), ("backward", cost.backward)):
            yield Line(f"a layer, {said}, {way}", name, float(row[f"{way}_ms"]), 1e3 * float(ours))
        kept = model.activation_bytes(batch, fused=cluster.fused)
        yield Line(f"bytes that a layer leaves, {said}", name, float(row["bytes"]), kept)


def losses() -> Iterator[Line]:
    """Yield head and loss, with the bytes that they hold. What the caller keeps of the logits is not among these."""
    for row in rows("loss"):
        if row["how"] == "eager in 2 bytes":
            continue
        tokens, cluster = int(row["rows"]), H100_PYTORCH if row["how"] == "eager" else COMPILED
        cost = cluster.cost(replace(LLAMA_3_8B, sequence=tokens))
        said = f"{row['how']}, {tokens:,} tokens"
        yield Line("head and loss", said, float(row["ms"]), 1e3 * float(cost.loss))


def update() -> Iterator[Line]:
    """Yield an update by AdamW, with clipping by the norm of all gradients, of weights in 4 bytes."""
    adam, clip = (
        float(row["ms"])
        for name, how in (("AdamW", "fused"), ("clip", "fused"))
        for row in rows("update")
        if (row["name"], row["how"], row["wide"]) == (name, how, "4")
    )
    count = next(int(row["rows"]) for row in rows("update"))
    ours = 1e3 * H100_PYTORCH.cost(STEP, **FSDP2).update_takes(count)  # type: ignore[arg-type]
    yield Line("update", f"{count:,} parameters", adam + clip, ours)


def copies(cluster: Cluster = H100_PYTORCH) -> Iterator[Line]:
    """Yield copies on the GPU, which are read and written, and those to the host and from there."""
    speeds = {"copy": cluster.memory_bandwidth * cluster.memory_reached}
    speeds |= dict.fromkeys(("to host", "from host"), cluster.host_link * cluster.link_reached)
    for row in rows("copy"):
        if row["name"] in speeds:
            ours = 1e3 * int(row["bytes"]) / speeds[row["name"]]
            yield Line("copies, on the GPU and to the host", row["name"], float(row["ms"]), ours)


def train(model: Model) -> Model:
    """One micro-batch, forward and backward, and the update."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    model.activations[0] = model.get_activation([0])
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
    grad = model.loss(model.activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        model.grad_weights[layer], grad = model.backward(
            layer, model.activations.pop(layer), grad, model.weights[layer]
        )
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
    return model


def steps(which: str = "step") -> Iterator[Line]:
    """Yield whole steps: seconds, and the peak."""
    for row in rows(which):
        ours, peak = _step(row)
        model = f"{row['layers']} x {row['wide']} {row['family']}"
        name = f"{model}, {row['how']}, {row['name']}, {row['batch']} x {row['sequence']}"
        yield Line(f"a {which}", name, float(row["ms"]), ours)
        yield Line("its peak" if which == "step" else "the peak foretold", name, float(row["bytes"]), peak)


def copied_by_fsdp() -> Iterator[tuple[str, float]]:
    """Yield the bytes for each parameter, moved as fast as the GPU moves bytes, for which forward and backward took
    longer than we say: what FSDP copies where it is ``FSDP2``, and next to nothing where weights are ``whole``."""
    speed = H100_PYTORCH.memory_bandwidth * H100_PYTORCH.memory_reached
    for row in rows("parts of a step"):
        model, cost = _priced(row)
        ours = model.layers * (cost.forward + cost.backward) + cost.loss
        missing = (float(row["forward_ms"]) + float(row["backward_ms"])) / 1e3 - float(ours)
        yield f"{row['family']} {row['wide']}, {row['how']}", missing * speed / model.size


def _priced(row: dict[str, str]) -> tuple[Transformer, RealCost]:
    """Return the model of a row, and what a step of it costs."""
    layout, _, compiled = row["how"].partition(", ")
    sizes = [int(row[name]) for name in ("layers", "wide", "heads", "sequence", "words")]
    model = Transformer(
        *sizes, kv_heads=int(row["kv_heads"]), feed_forward=int(row["high"]), gated=row["family"] == "Llama",
        attention="flash",
    )  # fmt: skip
    cost = (COMPILED if compiled else H100_PYTORCH).cost(
        model, micro_batch=int(row["batch"]), recompute=KEPT.get(row["name"], row["name"]),
        **(FSDP2 if layout == "FSDP2" else WHOLE),
    )  # fmt: skip
    if compiled:  # the layers were, and the loss was not
        cost = replace(cost, cluster=replace(COMPILED, loss_bytes=H100_PYTORCH.loss_bytes))
    return model, cost


def _step(row: dict[str, str]) -> tuple[float, float]:
    """Return the ms of a step, and its peak in bytes."""
    model, cost = _priced(row)
    went = partial(run, layers=model.layers, cost=cost, timeout=None)
    if not row["how"].startswith("FSDP2"):
        done = went(train, 1, batches=1)
        return 1e3 * done.seconds, done.bytes
    alone = went(fsdp_accumulating, 1, batches=1)
    return 1e3 * alone.seconds, _of_both(went(fsdp_accumulating, 2, batches=2), model)


def _of_both(done: Run, model: Transformer) -> float:
    """Return the peak of a rank of two that has what both of them keep, as one GPU alone has under FSDP2. (In a run of
    one rank all weights are whole, so those that are gathered are not told from those that are kept.)"""
    kept = model.size * (FSDP2["stored"] + model.optimizer_bytes(FSDP2["stored"]))
    at = MEMORY_KINDS.index("weight_grads")
    return max(sum(event.held) + kept / 2 + event.held[at] for event in done.events if event.rank == 0)


def lines() -> list[Line]:
    """Return all lines of the sets that tell how far our prices are off."""
    short = replace(H100_PYTORCH, attention_reached=0.37, attention_back_reached=0.3)  # as published: arXiv 2407.08608
    return [
        *products(), *attention(), *attention(short, "flash"), *layers(), *layers("compiled"), *losses(), *update(),
        *copies(), *steps(), *steps("step foretold"),
    ]  # fmt: skip


def errors(found: Sequence[Line]) -> list[foundry.Errors]:
    """Return how far each set is off."""
    sets = dict.fromkeys(line.what for line in found)
    return [foundry.errors(name, (line.off for line in found if line.what == name)) for name in sets]


def largest_that_ran() -> tuple[float, float]:
    """Return the largest peak with which a step ran, and the largest with which the allocator never had to make room,
    as parts of what the card has."""
    memory, known = H100_PYTORCH.memory, rows("step")
    ran = max(float(row["bytes"]) for row in known)
    at_ease = max(float(row["bytes"]) for row in known if row["retries"] == "0")
    return ran / memory, at_ease / memory
