"""Figures in the texts of the notebooks: each is computed here, from what the text derives it from or by a run."""

from __future__ import annotations

import importlib
import re
from fractions import Fraction
from functools import partial
from math import sqrt
from typing import Any

import pytest

from lib import HIDDEN, LENGTH, Cost, RingCost, run
from lib.course.bounds import bounds_of
from lib.course.specs import cost_named, puzzles
from lib.engines.torch_order import TORCH
from lib.real.hardware import FITS
from lib.record.kinds import MEMORY_KINDS
from lib.record.score import peak_event
from lib.record.table import collective
from solutions import build
from tests.programs import SOLUTIONS
from tools.published import MEGATRON

BILLION, YEAR = 10**9, 365.25 * 86_400
PER_SECOND = 4e14
"""Operations of one GPU: 40 percent of the 989 x 10^12 of an H100 in 16 bits."""
GB_IN, GB_BETWEEN = 450, 50
"""A second, from one GPU: NVLink in a node of H100s (900 both ways), and a network card of 400 Gbit/s."""


def operations(parameters: float, tokens: float) -> float:
    """Of training: forward takes 2 for each parameter and token, backward twice as many."""
    return 6 * parameters * tokens


def state(parameters: float) -> float:
    """Bytes: weight, gradient, master weight, and Adam's two averages."""
    return (2 + 2 + 4 + 4 + 4) * parameters


def adapters(rank: int, layers: int, hidden: int, inner: int) -> int:
    """Parameters of adapters beside all matrices of Llama's layers: four of attention, three of the MLP."""
    return layers * rank * (4 * (hidden + hidden) + 3 * (hidden + inner))


LAYER = 70 * BILLION / 80
GPT3 = 2048 * 12288 * (34 + 5 * 96 * 2048 / 12288)  # bytes of activations, one layer, one sequence: 2205.05198
INPUT = 2 * 2048 * 12288 / 1e9  # GB of the input of one layer, of GPT-3 and one sequence
SEQUENCES = 3.2e6 / 2048
STEP = operations(7.5 * BILLION, 4e6) / PER_SECOND
BATCH = operations(70 * BILLION, 4096) / PER_SECOND
SMALL = 2 * 7.5  # GB of weights

KEPT = 2048 * 12288 / 1e9  # sbh of GPT-3 and one sequence, in 10^9
OF_LLAMA_7B, OF_LLAMA_65B = adapters(16, 32, 4096, 11008), adapters(64, 80, 8192, 22016)
LARGE, LONGER = cost_named("large_weights"), cost_named("long_sequences")
SLOW = cost_named("slow_host")
CARD = 8 * 8 * BILLION * 8192 / (0.6 * 165e12)
"""Seconds: an RTX 4090, 2 + 4 + 2 operations for each of 8 billion parameters and 8,192 tokens."""
TICK = 2 * 8 * BILLION / 32 * 4096 / (0.6 * 165e12)
DOWN, ADAM = 2 * 8 / 25, 28 * 8 / 60
"""Seconds: 16-bit gradients over PCIe 4, and states, gradients and weights through the host's memory."""
HOPS, HOP = 2 * 15, 7.5  # of a ring of 16 ranks, and microseconds of each
BYTES = 2 * 15 / 16 * 2e6 / 25e9 * 1e6  # microseconds of 2 MB in an all-reduce


def ring(ranks: int, size: float, hop: float, links: float) -> float:
    """Milliseconds of a reduce-scatter or an all-gather of so many bytes; half of those of an all-reduce."""
    return ((ranks - 1) * hop + (ranks - 1) / ranks * size / links) * 1e3


def three_ways(size: float) -> list[float]:
    """Milliseconds of a sum over 8 nodes of 8: with one ring, with a ring for each card, and in the node and across."""
    one, eight = (2 * ring(64, size, 10e-6, cards * 25e9) for cards in (1, 8))
    return [one, eight, 2 * ring(8, size, 3e-6, 240e9) + 2 * ring(8, size / 8, 10e-6, 25e9)]


HPZ_LAYER = 12 * 5120**2  # parameters of a layer of 13 billion parameters in 40
TRIP = ring(32, 2 * HPZ_LAYER, 0, 12.5e9)
HPZ_TICK = 2 * HPZ_LAYER * 2048 / (2 / 3 * 312e12) * 1e3
THOUSAND = puzzles()["compose"].size | {"cost": cost_named("gpt_3_on_a100")}
STEPS = 300e9 / (1024 * 2048)
DERIVED = [
    ("p24_compose", f"That is {STEPS:,.0f} steps."),
    ("p24_compose", f"Each second that a step takes is {STEPS / 3600:.0f} hours of your life."),
    ("p24_compose", f"Data parallel needs {18 * 175:,} GB on each GPU"),
    ("p24_compose", f"| data parallel, 128 replicas of a node | | {18 * 175 / 8:.0f} and more | does not fit |"),
    ("p24_compose", {6: "A layer of the run is six of the 96"}[96 // 16]),
    ("p24_compose", f"**{int(FITS * 80)} GB**, which is what fits ({100 * FITS:.0f} percent of 80 GB)"),
    ("p21_hpz", f"A layer has {HPZ_LAYER / 1e6:.0f} million weights, {2 * HPZ_LAYER / 1e6:.0f} MB."),
    ("p21_hpz", f"over the card of every node: {TRIP:.0f} ms."),
    ("p21_hpz", f"240 GB a second, takes {ring(8, 2 * HPZ_LAYER, 0, 240e9):.1f}. To"),
    ("p21_hpz", f"compute the layer forward takes {HPZ_TICK:.1f} ms, for"),
    ("p21_hpz", f"computes it again, {3 * HPZ_TICK:.1f}."),
    ("p21_hpz", f"for {4 * HPZ_TICK:.0f} ms of computing it keeps the card busy for {3 * TRIP:.0f}."),
    ("p21_hpz", f"A tick is {HPZ_TICK:.1f} ms. A collective takes {TRIP / HPZ_TICK:.0f} ticks where"),
    ("p21_hpz", f"and {ring(8, 2 * HPZ_LAYER, 0, 240e9) / HPZ_TICK:.1f} inside"),
    ("p21_hpz", f"| FSDP over 32 GPUs | {16 * 13 / 32:g} | 3 for each micro-batch |"),
    ("p21_hpz", f"once more in each node | {16 * 13 / 32 + 2 * 13 / 8:g} | 2 for each micro-batch |"),
    ("p21_hpz", f"states over all | {4 * 13 / 8 + 12 * 13 / 32:.1f} | 2 for each step |"),
    ("p21_hpz", f"| everything over the node (HSDP) | {16 * 13 / 8:g} | 2 for each step |"),
    ("p21_hpz", f"all of the model on each GPU: {2 * 13} GB"),
    ("p21_hpz", f"has {2 * 6} trips of 8 ticks to make. That is {2 * 6 * 8} ticks"),
    ("p21_hpz", f"a rank computes for {6 * (1 + 3 + 0.5):g}"),
    ("p21_hpz", f"With {3 * 6 - 1} trips of 8 ticks it cannot be less than {(3 * 6 - 1) * 8}"),
    ("p21_hpz", f"3 trips become {2 / 4 + 0 + 1 / 4}"),
    ("p21_hpz", {4.5: "**1,179,648** elements: four and a half weights"}[1_179_648 / HIDDEN**2]),
    ("p20_hierarchical", f"has {2 * 63} hops, and goes at"),
    ("p20_hierarchical", f"and {2 * 63 / 64 * 64:.0f} MB over a network card"),
    ("p20_hierarchical", f"That is {three_ways(64e6)[0]:.1f} ms. In the"),
    (
        "p20_hierarchical",
        f"| one ring, one card of each node | {three_ways(64e6)[0]:.2f} ms | {three_ways(1e9)[0]:.1f} ms |",
    ),
    ("p20_hierarchical", f"| eight rings, eight cards | {three_ways(64e6)[1]:.2f} ms | {three_ways(1e9)[1]:.1f} ms |"),
    (
        "p20_hierarchical",
        f"| in the node, across, in the node | {three_ways(64e6)[2]:.2f} ms | {three_ways(1e9)[2]:.1f} ms |",
    ),
    ("p20_hierarchical", f"takes {8 * (1 + 2 + 0.5):g}, and no program can be faster"),
    ("index", f"takes {state(70 * BILLION) / 1e12:.1f} TB of memory"),
    ("index", f"= {state(70 * BILLION) / 1e12:.2f} TB"),
    ("index", f"need {round(operations(70 * BILLION, 15e12) / PER_SECOND / YEAR, -1):.0f} years"),
    ("index", f"= {operations(70 * BILLION, 15e12) / 1e24:.1f} x 10²⁴ operations"),
    ("index", f"That is {operations(70 * BILLION, 15e12) / PER_SECOND / 1e10:.1f} x 10¹⁰ seconds"),
    ("index", f"has {LAYER / 1e6:.0f} million weights"),
    ("index", f"takes {2 * LAYER * 4096 / 1e12:.1f} x 10¹² operations"),
    ("index", f"one tick is {2 * LAYER * 4096 / PER_SECOND * 1000:.0f} ms"),
    ("index", f"of 2,621,440 elements would be {2 * 2_621_440 / 1e6:.0f} MB"),
    ("index", f"875 million weights is {2 * LAYER / 1e9:.2f} GB"),
    ("p00_basic", f"A model of {80 / 2:.0f} billion parameters would just fit"),
    ("p00_basic", f"room for {80 * BILLION / state(1) / 1e9:.0f} billion parameters"),
    ("p00_basic", f"about {GPT3 / 1e9:.1f} GB of activations"),
    ("p01_grad_accum", f"keeps {GPT3 / 1e9:.2f} GB of activations"),
    ("p01_grad_accum", f"96 layers keep {96 * GPT3 / 1e9:.0f} GB"),
    ("p01_grad_accum", f"about {round(SEQUENCES, -1):,.0f} sequences of 2,048 tokens"),
    ("p01_grad_accum", f"{96 * GPT3 * SEQUENCES / 1e12:.0f} TB"),
    ("p02_ddp", {7.5: "seven and a half minutes"}[STEP / 60]),
    ("p02_ddp", f"make {operations(7.5 * BILLION, 4e6) / 1e17:.1f} x 10¹⁷"),
    ("p02_ddp", f"enough for {500_000 * 4e6 / 1e12:.0f} trillion tokens"),
    ("p02_ddp", {7: "take seven years"}[round(500_000 * STEP / YEAR)]),
    ("p02_ddp", f"done in {500_000 * STEP / 1000 / 86_400:.1f} days"),
    ("p02_ddp", f"takes {state(7.5):.0f} GB on *every* GPU"),
    ("p03_wsdp", f"have {64 * 80 / 1000:.1f} TB of memory between them"),
    ("p03_wsdp", f"16 bytes x 7.5 billion = {state(7.5):.0f} GB"),
    ("p04_fsdp", f"70 billion x 14 / 64 = {70 * 14 / 64:.0f} GB"),
    ("p04_fsdp", f"they take {2 * 70} GB on a GPU that has 80"),
    (
        "p04_fsdp",
        f"of one node, at {GB_IN} GB/s, it takes {2 * LAYER / GB_IN / 1e6:.1f} ms to gather",
    ),
    ("p04_fsdp", f"all {2 * 70} GB of its weights"),
    ("p05_pipeline", f"3 x 140 = {3 * 2 * 70} GB"),
    ("p05_pipeline", f"it takes {3 * 2 * 70 / GB_BETWEEN:.1f} seconds"),
    ("p05_pipeline", f"is done after {BATCH:.1f} "),
    ("p05_pipeline", f"{4096 * 8192 * 2 / 1e6:.0f} MB, or {4096 * 8192 * 2 / GB_BETWEEN / 1e6:.1f} milliseconds"),
    ("p09_zero1", f"takes {state(7.5):.0f} GB to train, and {12 * 7.5:.0f} of them belong to the optimizer"),
    ("p09_zero1", f"4 + 12/n bytes for each parameter: {7.5 * (4 + 12 / 64):.1f} GB instead of {state(7.5):.0f}"),
    ("p10_zero2", f"takes {7.5 * (4 + 12 / 64):.1f} GB on each of 64 GPUs. {2 * 7.5:.0f} of them are gradients"),
    ("p16_zero_bubble", f"leaves 3/11 of the time empty: {3 / 11:.0%}".replace("%", " percent")),
    ("p10_zero2", f"That is {2 * 7.5 / 64:.2f} GB."),
    ("p10_zero2", f"| {7.5 * (4 + 12 / 64):.1f} GB | {7.5 * (2 + 14 / 64):.1f} GB |"),
    ("p22_offload", f"16 bytes for each parameter, {state(8):.0f} GB in all"),
    ("p22_offload", f"The weights alone take {2 * 8} GB, so they fit on the card. The other {state(8) - 2 * 8:.0f} GB"),
    ("p22_offload", f"the card computes in {CARD:.1f} seconds takes {CARD + ADAM + 2 * DOWN:.1f}. How much"),
    ("p22_offload", {5: "of the other 5 seconds"}[round(ADAM + 2 * DOWN)]),
    ("p22_offload", {1.5: "one and a half times the weights, as 24 GB are"}[24 / (2 * 8)]),
    ("p22_offload", {1.5: "**2,359,296** elements: one and a half times"}[2_359_296 / (6 * SLOW.weight_elements)]),
    ("p22_offload", f"That makes **{CARD:.1f} s**. Over PCIe 4"),
    ("p22_offload", f"the {2 * 8} GB of gradients go down in {DOWN:.2f} s, and the weights come up in {DOWN:.2f} s"),
    ("p22_offload", f"a new weight, {12 * 2 + 2 + 2} in all"),
    ("p22_offload", f"so that takes {ADAM:.1f} s. Together **{CARD + ADAM + 2 * DOWN:.1f} s**"),
    ("p22_offload", f"each takes {TICK * 1000:.0f} ms forward for 4,096 tokens: this is a tick"),
    ("p22_offload", f"A transfer of {2 * 8 / 32 * 1000:.0f} MB takes {DOWN / 32 * 1000:.0f} ms"),
    ("p22_offload", f"an update {ADAM / 32 * 1000:.0f} ms, or {ADAM / 32 / TICK:.1f} ticks"),
    ("p22_offload", {15: "is a fifteenth of its weight"}[round(8e9 / 32 / (4096 * 4096))]),
    ("p22_offload", f"activation_elements={SLOW.activation_elements:_}, host_update={SLOW.host_update}"),
    ("p22_offload", f"The device computes for {2 * 6 * (1 + 3)} ticks"),
    ("p22_offload", f"The device waits for {93 - 2 * 6 * (1 + 3)} ticks"),
    ("p22_offload", f"as large as the weights, {2 * 8} GB more on a card of 24"),
    ("p22_offload", f"The price is {(2_048_000 - 1_933_312) / 1_933_312 * 100:.0f} percent more memory"),
    ("p19_buckets", f"pieces of it around in {HOPS} hops"),
    ("p19_buckets", f"the bytes take {BYTES:.0f} µs, as long as"),
    ("p19_buckets", f"latency* of {HOP} µs, however little it carries"),
    (
        "p19_buckets",
        f"and {HOPS} of them are another {HOPS * HOP:.0f} µs",
    ),
    ("p19_buckets", f"every sum takes {HOPS * HOP + BYTES:.0f} µs, and a layer's backward pass {BYTES:.0f}."),
    ("p19_buckets", f"the network is {(BYTES + 24 * HOPS * HOP) / 1000:.2f} ms behind"),
    ("p19_buckets", f"A tick is the {BYTES / 2:.0f} µs of a forward pass"),
    ("p19_buckets", f"**{HOPS * HOP / 75:g} ticks for its {HOPS} hops, and {BYTES / 75:g}n for its bytes**"),
    (
        "p19_buckets",
        f"here √(24 · 2/3) = {sqrt(24 * 2 / 3):g}, and {4 * 3} + {2 * 24 // 4} = {4 * 3 + 2 * 24 // 4} ticks",
    ),
    ("p12_prefetch", f"million weights, {2 * LAYER / 1e9:.2f} GB: {2 * LAYER / GB_BETWEEN / 1e6:.0f} ms to gather"),
    ("p12_prefetch", f"on 10,000 tokens takes {2 * LAYER * 10_000 / PER_SECOND * 1000:.0f} ms"),
    ("p12_prefetch", f"takes {2 / GB_BETWEEN / (2 * 10_000 / PER_SECOND * 1e9):.1f} ticks, as between those nodes"),
    ("p12_prefetch", f"4 x 10¹⁴ / (50 x 10⁹) = {PER_SECOND / GB_BETWEEN / 1e9:,.0f} tokens"),
    ("p12_prefetch", f"a second, {round(PER_SECOND / GB_IN / 1e9, -2):.0f} would do"),
    ("p13_one_f_one_b", f"4 of them leave {3 / 7:.0%} of".replace("%", " percent")),
    ("p13_one_f_one_b", f"8 leave {3 / 11:.0%} and 16 leave {3 / 19 * 100:.0f}.".replace("%", " percent")),
    ("p13_one_f_one_b", f"2,048 tokens takes {12 * INPUT:.1f} GB of each stage"),
    ("p13_one_f_one_b", f"a bubble of {7 / 71:.0%} you need 64".replace("%", " percent")),
    ("p13_one_f_one_b", f"at a time: {64 * 12 * INPUT:.0f} GB"),
    (
        "p13_one_f_one_b",
        f"{8 * 12 * INPUT:.1f} GB instead of {64 * 12 * INPUT:.0f}, and {12 * INPUT:.1f} GB on the last",
    ),
    ("p13_one_f_one_b", f"(8 + 3) x (2 + 2) + 1 = {11 * 4 + 1}."),
    ("p13_one_f_one_b", f"shrinks to 3/35, {3 / 35:.0%}".replace("%", " percent")),
    ("p13_one_f_one_b", f"and 6 messages go by, {4 * 4 + 6 * 0.4:.1f} ticks"),
    ("p13_one_f_one_b", f"could do 18.4 / 4 = {18.4 / 4:.1f} micro-batches"),
    ("p13_one_f_one_b", f"3 x 2.4 + 32 + 3 x 2.4 + 1 = {3 * 2.4 + 32 + 3 * 2.4 + 1:.1f}."),
    ("p14_interleaved", f"{16_384:,} GPUs, in {16_384 // (16 * 8)} pipelines of 16 stages, with eight GPUs to a stage"),
    ("p14_interleaved", f"A batch is 2,048 sequences, which is {2_048 // 128} for each pipeline"),
    ("p14_interleaved", f"the bubble takes 15/31 of each step: {15 / (16 + 15):.0%}".replace("%", " percent")),
    ("p14_interleaved", f"the bubble: {12 / 45:.0%} of the ranks' time, and".replace("%", " percent")),
    ("p14_interleaved", f"the ranks' time, and {6 / 39:.0%}.".replace("%", "")),
    (
        "p14_interleaved",
        f"A rank still has {8 * 2 * 2} ticks of forwards and backwards to do, and {2 * 0.5:g} of updates",
    ),
    ("p14_interleaved", f"the bubble is {3 * 2} ticks instead of {3 * 4}"),
    ("p14_interleaved", f"p v + p - 1: {4 * 2 + 4 - 1} instead of {4 * 2}"),
    ("p15_breadth_first", f"into eight stages, and each stage still takes {state(70 / 8):.0f} GB to train"),
    (
        "p15_breadth_first",
        f"For the {2 * 70 / 8:g} GB of a stage, that takes 3 x 17.5 / 50 = {3 * 17.5 / GB_BETWEEN:.2f} s",
    ),
    ("p15_breadth_first", f"takes {operations(70 / 8 * BILLION, 4096) / PER_SECOND:.2f} s to compute"),
    ("p15_breadth_first", {2: "Two thirds of the time"}[round(3 * 1.05 / (1.05 + 0.54))]),
    ("p15_breadth_first", {16: "sixteen times as many elements"}[LARGE.weight_elements // LARGE.activation_elements]),
    ("p15_breadth_first", f"here {8 * 2} instead of {4 * 2 + 4 - 1}"),
    ("p15_breadth_first", f"the weights of a layer are {2 * 12 * 12288**2 / BILLION:.1f} GB in 16 bits"),
    (
        "p15_breadth_first",
        f"take {2048 * 12288 * (34 + 5 * 96 * 2048 / 12288) / BILLION:.1f} GB for each sequence of 2,048",
    ),
    ("p15_breadth_first", f"and {2 * 2048 * 12288 / BILLION:.2f} GB if all but the layer's input"),
    (
        "p11_checkpointing",
        f"leaves {GPT3 / 1e9:.1f} GB of activations behind for a single sequence of 2,048 tokens, and",
    ),
    ("p11_checkpointing", f"That makes {96 * GPT3 / 1e9:.0f} GB, on a GPU that has 80."),
    ("p11_checkpointing", f"all 96 layers are only {96 * INPUT:.0f} GB"),
    ("p11_checkpointing", f"with `selective` they are {96 * 34 * 2048 * 12288 / 1e9:.0f} GB"),
    ("p11_checkpointing", {Fraction(1, 3): "a step takes a third longer"}[Fraction(1, 1 + 2)]),
    (
        "p11_checkpointing",
        f"layer takes {round(GPT3 / 2048 / 12288)}sbh: {round(GPT3 / 2048 / 12288 / 2)} times as much",
    ),
    ("p11_checkpointing", f"takes s/(6h) of a forward, 1/{6 * 12288 // 2048} for s = 2,048 and h = 12,288"),
    ("p11_checkpointing", f"it is 34sbh: {34 // 2} times as much"),
    ("p11_checkpointing", f"it saves {1 - 0.03:.2f} ticks for 16"),
    ("p11_checkpointing", {True: "more than three times as much"}[3 < 0.97 / 16 * 56 < 4]),
    ("p11_checkpointing", f"then it is 2√L, here {2 * 4} instead of {16 + 1}"),
    ("p17_tensor_parallel", f"it is {2**24 // 8192:,} sequences of 8,192 tokens"),
    ("p17_tensor_parallel", f"**{16_384 - 2_048:,} GPUs would have none"),
    ("p17_tensor_parallel", {7: "seven of eight would stand still"}[(16_384 - 2_048) * 8 / 16_384]),
    ("p17_tensor_parallel", f"an activation of GPT-3 is {INPUT * 1000:.0f} MB"),
    ("p17_tensor_parallel", f"a layer's weights are {2 * 12 * 12288**2 / BILLION:.1f} GB"),
    ("p17_tensor_parallel", f"each rank sends {4 * 2 * 7 / 8 * INPUT * 1000:.0f} MB per layer"),
    ("p17_tensor_parallel", f"With FSDP it would send {3 * 7 / 8 * 2 * 12 * 12288**2 / BILLION:.1f} GB"),
    ("p17_tensor_parallel", f"{16_384 // (16 * 8)} such pipelines"),
    ("p23_lora", f"for each parameter: {state(7):.0f} GB."),
    ("p23_lora", f"16 bits, are {2 * 7} GB"),
    ("p23_lora", f"are {OF_LLAMA_7B / 1e6:.0f} million parameters instead of 7 billion"),
    ("p23_lora", f"the {state(7):.0f} GB become {2 * 7 + state(OF_LLAMA_7B) / 1e9:.1f}."),
    ("p23_lora", f"are {state(OF_LLAMA_7B) / 1e9:.1f} of {2 * 7 + state(OF_LLAMA_7B) / 1e9:.1f} GB"),
    ("p23_lora", {32: "a 32nd of a weight"}[Cost().weight_elements / Cost().adapter_elements]),
    ("p23_lora", f"a second on each GPU with LoRA and 16,891 without: {24_824 / 16_891:.2f} times as many"),
    ("p23_lora", f"of three, which would be {3 / 2} times"),
    ("p23_lora", f"from more than {12 * 65} GB"),
    ("p23_lora", f"weights in 4 bits are {65 / 2} GB"),
    ("p23_lora", f"of rank 64, take {state(OF_LLAMA_65B) / 1e9:.1f} GB with all"),
    ("p18_sequence_parallel", f"leaves {96 * KEPT * (10 + 24 / 8):.0f} GB of activations on every one of 8"),
    ("p18_sequence_parallel", f"**{96 * KEPT * 10:.0f} GB of them are the same on all 8**"),
    ("p18_sequence_parallel", f"that is {96 * KEPT * (10 + 24 / 8):.0f} GB and {96 * KEPT * 34 / 8:.0f} GB."),
    ("p18_sequence_parallel", f"A quarter of an activation is {LONGER.activation_elements // 4:,} elements"),
    (
        "p18_sequence_parallel",
        {4: "four times as large as before"}[LONGER.activation_elements // Cost().activation_elements],
    ),
    ("p18_sequence_parallel", {2: "and larger than a weight"}[LONGER.activation_elements // LONGER.weight_elements]),
    ("p06_gpipe", f"fifteen sixteenths, {15 / 16:.0%}".replace("%", " percent")),
    ("p06_gpipe", f"here 7/4 of 16, which is {16 * 7 // 4} ticks"),
    ("p06_gpipe", f"3/7 or {3 / 7:.0%}".replace("%", " percent")),
    ("p06_gpipe", f"3/19, {3 / 19:.0%}".replace("%", " percent")),
    (
        "p07_pipeline_fsdp",
        f"divides the {state(70) / 1000:.1f} TB of a 70-billion model by four: {state(70) / 4:.0f} GB",
    ),
    ("p07_pipeline_fsdp", f"1.12 TB / 16 = {state(70) / 16:.0f} GB"),
    ("p08_replica_fsdp", {9: "nine times less"}[GB_IN // GB_BETWEEN]),
    ("p08_replica_fsdp", f"the {SMALL:.0f} GB of a 7.5-billion model"),
    ("p08_replica_fsdp", f"3 x 15 / 450 = {3 * SMALL / GB_IN:.1f} s inside a node"),
    ("p08_replica_fsdp", f"and {3 * SMALL / GB_BETWEEN:.1f} s between nodes"),
    ("p08_replica_fsdp", f"takes {operations(7.5 * BILLION, 4096) / PER_SECOND:.2f} s to compute"),
]
"""Where, and what is to stand there."""


def text_of(source: str) -> str:
    """What a source says, in one line: its texts, and the comments of its code."""
    cells = build.read_cells(build.ROOT / "solutions" / f"{source}.py")
    return " ".join("\n".join(cell.source for cell in cells).replace("\n# ", " ").split())


@pytest.mark.parametrize(("source", "quoted"), DERIVED, ids=[f"{source}: {quoted}" for source, quoted in DERIVED])
def test_a_derived_figure_is_what_it_is_derived_from(source: str, quoted: str) -> None:
    assert quoted in text_of(source)


def program(source: str, name: str) -> Any:
    return getattr(importlib.import_module(f"solutions.{source}"), name)


FOUR: dict[str, Any] = {"ranks": 4, "layers": 6, "batches": 4}
THREE: dict[str, Any] = {"ranks": 3, "layers": 1, "batches": 3}
EIGHT = FOUR | {"layers": 8}
ZERO: dict[str, Any] = {"ranks": 4, "layers": 4, "batches": 8, "cost": cost_named("free_links")}
TWICE = FOUR | {"batches": 8, "cost": cost_named("two_halves")}
INSIDE: dict[str, Any] = {"layers": 12, "cost": cost_named("inner_activations")}
LONG = FOUR | {"cost": cost_named("long_gathers")}
ROUNDS = EIGHT | {"batches": 8}
QUICK = ROUNDS | {"cost": cost_named("quick_messages")}
RING = {"ranks": 8, "layers": 8, "batches": 16, "mesh": {"stage": 4, "shard": 2}, "cost": LARGE}
NODES = {"ranks": 8, "layers": 6, "batches": 16, "mesh": {"replica": 2, "shard": 4}, "node_size": 4}
ONE: dict[str, Any] = {"ranks": 4, "layers": 8, "batches": 1}
ALONE = ONE | {"ranks": 1, "cost": Cost(collective=0)}
SLICES = ONE | {"cost": LONGER}
BESIDE = FOUR | {"train": "adapters"}
FOUR_BITS = {"cost": Cost(weight_elements=HIDDEN**2 // 4)}
CUBE = {"ranks": 8, "layers": 6, "batches": 8, "mesh": {"replica": 2, "shard": 2, "tensor": 2}, "node_size": 4}
HOPPING = {"ranks": 16, "layers": 24, "batches": 16, "node_size": 8, "cost": cost_named("long_hops")}
LEVELS = puzzles()["hierarchical"].size | {"cost": cost_named("two_speeds")}
ONE_CARD = puzzles()["hpz"].size | {"cost": cost_named("one_card")}
HOST = {"ranks": 1, "layers": 6, "batches": 2, "hosts": 1, "cost": SLOW}
MEASURED = [
    *(
        ("p24_compose", name, THOUSAND, said)
        for name, said in (
            ("fsdp_one_by_one", "| FSDP, a micro-batch after the other | {time:.0f} | {gigabytes:.0f} | |"),
            ("fsdp_at_once", "| FSDP, all four at once | {time:.0f} | {gigabytes:.0f} | does not fit |"),
            ("fsdp_at_once_ahead", "gathered ahead | {time:.0f} | {gigabytes:.0f} | does not fit |"),
            ("fsdp_two_at_once_ahead", "two at once, gathered ahead | {time:.0f} | {gigabytes:.0f} | |"),
            ("sixteen_stages", "16 stages, 8 replicas, states in pieces | {time:.0f} | {gigabytes:.0f} | |"),
            ("whole_states", "16 replicas, all-reduce | {time:.0f} | {gigabytes:.0f} | does not fit |"),
            ("compose", "16 replicas, states in pieces | {time:.0f} | {gigabytes:.0f} | |"),
            ("eight_stages", "overlapped, with fewer forwards ahead | {time:.0f} | {gigabytes:.0f} | |"),
            ("eight_small_stages", "the same, and sums of gradients in pieces | {time:.0f} | {gigabytes:.0f} | |"),
            ("compose_overlapped", "states and sums of gradients in pieces | {time:.0f} | {gigabytes:.0f} | |"),
            ("compose_overlapped", "{time:.1f} seconds, which count as {time:.0f}, and {gigabytes:.0f} GB."),
        )
    ),
    ("p21_hpz", "fsdp_through_one_card", ONE_CARD, "[FSDP: {time:g} ticks, {memory:,} elements]"),
    ("p21_hpz", "hpz", ONE_CARD, "[hpZ: {time:g} ticks, {memory:,} elements]"),
    ("p21_hpz", "hsdp", ONE_CARD, "On these ranks HSDP takes {memory:,} elements."),
    ("p21_hpz", "hpz_overlapped", ONE_CARD, "The star: **{time:g}** ticks, **{memory:,}** elements."),
    ("p21_hpz", "hpz_overlapped", ONE_CARD, "That makes {time:g} ticks."),
    ("p21_hpz", "hpz_where_there_is_room", ONE_CARD, "it makes {time:g} ticks and {memory:,} elements: fewer"),
    ("p21_hpz", "fsdp_ahead", ONE_CARD, "The same can be done with FSDP: {time:g} ticks, which is more"),
    ("p20_hierarchical", "flat_ring", LEVELS, "[One ring: {time:g} ticks]"),
    ("p20_hierarchical", "hierarchical", LEVELS, "[In the node, across, in the node: {time:g} ticks]"),
    ("p20_hierarchical", "hierarchical_overlap", LEVELS, "That makes {time:g} ticks."),
    ("p19_buckets", "buckets", HOPPING, "[Four buckets of six layers: {time:g} ticks]"),
    ("p19_buckets", "buckets_growing", HOPPING, "15 ticks, and is 19 behind instead of 24: {time:g} ticks"),
    ("p19_buckets", "buckets_growing", HOPPING, "The star: **{time:g}** ticks, **{memory:,}** elements"),
    ("p19_buckets", "buckets_in_94_5", HOPPING, "instead of those of eight: {time:g} ticks, with 2, 2, 5, 6, 8"),
    *(
        ("p22_offload", name, HOST, said)
        for name, said in (
            ("offload_blocking", "[One after the other: {time:g} ticks, {memory:,} elements]"),
            ("offload", "[Overlapped: {time:g} ticks, {memory:,} elements]"),
            ("offload_by_layer", "[Layer by layer: {time:g} ticks, {memory:,} elements]"),
            ("offload_by_layer", "The star: **{time:g}** ticks, **{memory:,}** elements"),
            ("offload_weights_too", "in less than half the memory: {memory:,} elements, fewer than"),
        )
    ),
    *(
        ("p18_sequence_parallel", name, SLICES, said)
        for name, said in (
            ("tensor_parallel_long", "[Tensor parallel: {time:g} ticks, {memory:,} elements]"),
            ("sequence_parallel", "[Sequence parallel: {time:g} ticks, {memory:,} elements]"),
            ("whole_inputs_kept", "It takes {time:g} ticks and just as many elements as tensor parallel, {memory:,}."),
            ("sequence_parallel_in_14_85", "That takes {time:g} ticks, and fewer elements than the target."),
        )
    ),
    ("p23_lora", "fsdp_again", FOUR, "[All weights: {time:g} ticks, {memory:,} elements]"),
    ("p23_lora", "lora", BESIDE, "[Adapters: {time:g} ticks, {memory:,} elements]"),
    (
        "p23_lora",
        "lora",
        BESIDE | FOUR_BITS,
        "takes {memory:,} elements. Then 78% of",
    ),
    ("p23_lora", "lora_overlap", BESIDE, "2 gathers are {time:g} ticks, in the memory of the plain"),
    ("p23_lora", "lora_early", BESIDE, "highest: {time:g} ticks, and a whole weight more."),
    ("p23_lora", "lora_checkpointed", BESIDE, "with every third, {time:g} ticks and {memory:,} elements."),
    ("p17_tensor_parallel", "tensor_parallel", ALONE, "[One rank: {time:g} ticks, {memory:,} elements]"),
    ("p17_tensor_parallel", "tensor_parallel", ONE, "[Four ranks: {time:g} ticks, {memory:,} elements]"),
    ("p17_tensor_parallel", "tensor_parallel_overlap", ONE, "That makes {time:g} ticks"),
    ("p17_tensor_parallel", "replica_fsdp_tensor", CUBE, "It takes {time:g} ticks and {memory:,} elements."),
    ("p02_ddp", "ddp_overlap", FOUR | {"layers": 2}, "{time:g}.0 ticks and all the memory of the target, {memory:,} "),
    ("p02_ddp", "wait_at_once", THREE, "the peaks in the table: {memory:,} and"),
    ("p02_ddp", "wait_later", THREE, "and {memory:,} elements. (`draw`"),
    ("p03_wsdp", "wsdp_prefetch", FOUR, "That takes {time:g} ticks and no more memory"),
    ("p06_gpipe", "one_forward_one_backward", EIGHT, "takes {time:g} ticks and {memory:,} elements. With 16"),
    ("p06_gpipe", "one_forward_one_backward", EIGHT | {"batches": 16}, "takes {time:g} ticks and {memory:,} elements,"),
    ("p06_gpipe", "gpipe", EIGHT | {"batches": 16}, "`gpipe` takes {time:g} and {memory:,}."),
    ("p09_zero1", "zero1", TWICE, "Both take {time:g} ticks."),
    ("p09_zero1", "zero1", TWICE, "and the second {memory:,}."),
    ("p09_zero1", "ddp_twice", TWICE, "But the first holds {memory:,} elements"),
    ("p09_zero1", "ddp_twice", TWICE, "[Data parallel: {time:g} ticks, {memory:,} elements]"),
    ("p09_zero1", "zero1", TWICE, "[ZeRO-1: {time:g} ticks, {memory:,} elements]"),
    ("p09_zero1", "zero1_overlap", TWICE, "the last gather are waited for: {time:g} ticks, in the same memory."),
    *(
        ("p16_zero_bubble", name, ZERO, said)
        for name, said in (
            ("never_split", "[Whole backwards: {time:g} ticks, {memory:,} elements]"),
            ("zb_h1", "[Halves: {time:g} ticks, {memory:,} elements]"),
            ("zero_bubble", "to pass, with {time:g} ticks in the memory of whole backwards."),
            ("zb_h1", "takes less than {time:g}:"),
            ("zb_h1", "late by `r` micro-batches it is {time:g} ticks"),
        )
    ),
    ("p10_zero2", "zero2_overlap", TWICE, "That takes {time:g} ticks and half an activation more memory"),
    *(
        ("p11_checkpointing", name, INSIDE, said)
        for name, said in (
            ("keep_nothing", "| nothing | {time:.2f} | {memory:,} |"),
            ("keep_selectively", '| `"selective"` | {time:.2f} | {memory:,} |'),
            ("keep_everything", '| `"all"` | {time:.2f} | {memory:,} |'),
            ("keep_nothing", "[Nothing is kept: {time:g} ticks, {memory:,} elements]"),
            ("checkpointing", "[Half of the layers keep a little: {time:g} ticks, {memory:,} elements]"),
            ("last_one_free", "saves a whole tick: {time:g} ticks and {memory:,} elements"),
            ("checkpointing_in_47_18", "when much of the rest is gone: {time:g} ticks and {memory:,} elements."),
            ("checkpointing_in_48_15", "you are at {time:g} ticks and {memory:,} elements."),
        )
    ),
    ("p12_prefetch", "fsdp_blocking", LONG, "a plain answer to puzzle 4 takes {time:g} ticks"),
    ("p12_prefetch", "fsdp_blocking", LONG, "[One after the other: {time:g} ticks, {memory:,} elements]"),
    ("p12_prefetch", "fsdp_blocking", LONG, "elements instead of {memory:,}."),
    ("p12_prefetch", "prefetch", LONG, "[The next gather ahead: {time:g} ticks, {memory:,} elements]"),
    ("p12_prefetch", "prefetch", LONG, "The price is memory: {memory:,} elements"),
    ("p12_prefetch", "prefetch_in_21_8", LONG, "all the computing, and nothing else: {time:g} ticks."),
    ("p14_interleaved", "interleaved", ROUNDS, "this schedule takes {time:g} ticks, and"),
    (
        "p14_interleaved",
        "interleaved_ahead",
        QUICK,
        "that takes {time:g} ticks and {memory:,} elements. That is half a tick",
    ),
    ("p14_interleaved", "interleaved_in_40_5", QUICK, "do meanwhile: {time:g} ticks and {memory:,} elements."),
    ("p15_breadth_first", "depth_first", RING, "It takes {time:g} ticks and {memory:,} elements."),
    (
        "p15_breadth_first",
        "depth_first",
        RING,
        "[Depth first: {time:g} ticks, 16 gathers and 8 reductions of each layer]",
    ),
    ("p15_breadth_first", "depth_first_kept", RING, "only once, it takes {time:g} ticks and {memory:,} elements"),
    (
        "p15_breadth_first",
        "breadth_first",
        RING,
        "[Breadth first: {time:g} ticks, 2 gathers and 1 reduction of each layer]",
    ),
    (
        "p15_breadth_first",
        "breadth_first_in_45_2",
        RING,
        "piece of work is done: {time:g} ticks, and still {memory:,} elements.",
    ),
    (
        "p15_breadth_first",
        "breadth_first_in_43",
        RING,
        "can be awaited after the next: {time:g} ticks and {memory:,} elements.",
    ),
    ("p02_ddp", "ddp_as_pytorch", FOUR | {"layers": 2}, "that order takes {time:g} ticks and {memory:,} elements."),
    (
        "p02_ddp",
        "ddp_as_pytorch",
        FOUR | {"layers": 2},
        "program does the same: {time:g} ticks and {memory:,} elements.",
    ),
    ("p02_ddp", "ddp", FOUR | {"layers": 2}, "more time and less memory, {time:g} ticks and {memory:,} elements,"),
    ("p12_prefetch", "prefetch", LONG, "the third hint: {time:g} ticks and {memory:,} elements here."),
    ("p12_prefetch", "fsdp_blocking", LONG, "awaits each call, with {time:g} ticks and {memory:,} elements,"),
    ("p13_one_f_one_b", "one_f_one_b", ROUNDS, "forwards at the start, {time:g} ticks and {memory:,} elements."),
    ("p13_one_f_one_b", "one_f_one_b_in_47_4", ROUNDS, "the star asks for, it is {time:g} and {memory:,}, and"),
    ("p16_zero_bubble", "zb_h1", ZERO, "which takes {time:g} ticks and {memory:,} elements here"),
    ("p08_replica_fsdp", "fsdp_on_nodes", NODES, "It takes {time:g}.0 ticks and {memory:,} elements."),
]
"""Where, a program and its size, and the sentence with its figures."""


@pytest.mark.parametrize(("source", "name", "size", "sentence"), MEASURED, ids=[row[1] for row in MEASURED])
def test_a_measured_figure_is_what_the_program_takes(
    source: str, name: str, size: dict[str, Any], sentence: str
) -> None:
    done = run(program(source, name), **size)
    assert sentence.format(time=done.time, memory=int(done.memory), gigabytes=done.memory / 1e9) in text_of(source)


def test_what_is_in_memory_and_what_travels_with_adapters_is_as_quoted() -> None:
    text, weight = text_of("p23_lora"), Cost().weight_elements
    shares = []
    for cost in (Cost(), FOUR_BITS["cost"]):
        done = run(program("p23_lora", "lora"), **BESIDE, cost=cost)
        event = peak_event(done.events)
        assert event is not None
        held = dict(zip(MEMORY_KINDS, event.held, strict=True))
        beside = 6 * cost.adapter_elements
        assert held["opt_states"] == beside and event.kind == "backward"
        parts = held["activations"] + held["activation_grads"], held["weights"] - beside, 2 * beside
        assert sum(parts) == done.memory
        shares.append([f"{float(part / done.memory):.0%}" for part in parts])
    assert f"{shares[0][0]} of the memory are activations and the gradient of one" in text
    assert f"what is trained; {shares[0][1]} are frozen weights" in text
    assert f"their states are the other {shares[0][2].rstrip('%')}%" in text
    assert f"Then {shares[1][0]} of the peak are activations" in text

    def brought(name: str, size: dict[str, Any], kind: str) -> float:
        """Weights' worth of elements that rank 0 gets from others: 3/4 of each tensor, of an all-reduce twice that."""
        done = run(program("p23_lora", name), **size)
        own = [event for event in done.events if event.rank == 0 and event.kind == kind]
        whole = [event.elements * (4 if event.tensor == "Weight" else 1) for event in own]
        return float(sum(whole) * collective(kind).rounds * Fraction(3, 4) / weight)

    assert f"2 x 6 gathers bring a rank {brought('lora', BESIDE, 'allgather'):g} weights' worth" in text
    assert f"of gradients, another {brought('fsdp_again', FOUR, 'scatterreduce'):g}, are gone" in text
    assert f"of all six adapters bring it {brought('lora', BESIDE, 'allreduce'):.2f}." in text
    cost = Cost()
    assert f"together take {cost.collective * 2:g}" in text and cost.backward / 2 == cost.update == 0.5
    assert f"{6 * (cost.forward + cost.backward / 2 + cost.update):g} ticks of computing and 2 gathers" in text


def test_data_parallel_is_right_and_slower_and_fatter_than_ddp_as_quoted() -> None:
    programs = [program("p02_ddp", name) for name in ("data_parallel", "ddp")]
    by_ranks = {n: [run(fn, ranks=n, layers=2, batches=n) for fn in programs] for n in (4, 8, 16)}
    for both in by_ranks.values():
        for done in both:
            done.check()
    (at_4, ddp), (at_8, _), (at_16, _) = by_ranks.values()
    assert len({(done.time, done.memory) for _, done in by_ranks.values()}) == 1
    by_size = [run(fn, ranks=16, layers=2, batches=16, cost=RingCost()).time for fn in programs]
    text = text_of("p02_ddp")
    assert f"takes {at_4.time} ticks on 4 ranks, {at_8.time} on 8 and {at_16.time} on 16, where `ddp` takes" in text
    assert f"where `ddp` takes {ddp.time} each time" in text
    assert f"16 ranks take {by_size[0]:.1f} ticks with `DataParallel` and {by_size[1]:.1f} with `ddp`." in text
    assert f": {at_4.memory:,} elements on 4 ranks and {at_16.memory:,} on 16." in text
    assert f"no rank holds more than {ddp.memory:,} in either case" in text


def test_units_take_the_time_and_memory_of_the_table() -> None:
    in_units, latency = program("p04_fsdp", "in_units"), program("p04_fsdp", "OneCall")
    rows = []
    for unit, name in ((1, "1"), (2, "2"), (3, "3"), (6, "6, all of them")):
        plain, late = (in_units(unit, latency) for latency in (False, True))
        plain.check()
        late.check()
        assert plain.memory == late.memory
        first = [event for event in late.models[0].log if event.kind in ("allgather", "scatterreduce")]
        calls = sum(event.layer % unit == 0 for event in first)
        rows.append(f"| {name} | {calls} | {plain.memory:,} | {plain.time} | {late.time} |")
    text = text_of("p04_fsdp")
    assert " ".join(rows) in text
    assert latency().latency * 3 == Fraction("0.3")  # a ring of four ranks: three hops
    times = [float(row.split("|")[-2]) for row in rows]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("reduce", ["allreduce", "scatterreduce"])
def test_two_micro_batches_a_rank_take_what_puzzle_4_says(reduce: str) -> None:
    text, summed_by = text_of("p04_fsdp"), program("p04_fsdp", "summed_by")
    done, by_size = summed_by(reduce), summed_by(reduce, program("p04_fsdp", "by_size"))
    assert f"two micro-batches a rank: {done.time} ticks, {done.memory:,} elements" in text
    sentence = {"allreduce": "{} ticks with all-reduces", "scatterreduce": "still {} with reduce-scatters"}[reduce]
    assert sentence.format(by_size.time) in text


def test_prefetching_takes_the_ticks_of_the_table_and_hides_what_the_text_says() -> None:
    text, at = text_of("p12_prefetch"), program("p12_prefetch", "with_collectives_of")
    prices = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0)
    assert f"| a collective takes | {' | '.join(map(str, prices))} |" in text
    for name, row in (("fsdp_blocking", "each call awaited"), ("prefetch", "the next gather ahead")):
        times = [at(price, program("p12_prefetch", name)).time for price in prices]
        assert f"| {row} | {' | '.join(map(str, times))} |" in text
    waiting = {}
    for name in ("fsdp_blocking", "prefetch"):
        log = at(0.8, program("p12_prefetch", name)).models[0].log
        calls = [event for event in log if event.group]
        work = [event for event in log if event.end > event.start and not event.group]
        beside = [any(one.start < call.end and call.start < one.end for one in work) for call in calls]
        assert len(calls) == 18
        waiting[name] = [(call.kind, call.layer) for call, hidden in zip(calls, beside, strict=True) if not hidden]
    assert len(waiting["fsdp_blocking"]) == 18 and "Both make the same 18 calls" in text
    assert waiting["prefetch"] == [("allgather", 0), ("allgather", 5), ("scatterreduce", 0)] and "all but three" in text
    idle = 18 * Fraction(4, 5)
    took = Fraction(str(at(0.8, program("p12_prefetch", "fsdp_blocking")).time))
    assert f"for {float(idle):g} of them, {float(idle / took):.0%}".replace("%", " percent") in text
    gathers = sum(kind == "allgather" for kind, _ in waiting["fsdp_blocking"])
    assert f"{({Fraction(2, 3): 'Two thirds'})[Fraction(gathers, 18)]} of this time go to weights" in text


def test_1f1b_takes_what_its_tables_say() -> None:
    text, in_flight = text_of("p13_one_f_one_b"), program("p13_one_f_one_b", "in_flight")
    hill, stairs, one_more, two_more, twice = (
        program("p13_one_f_one_b", name)
        for name in ("all_of_them", "just_enough", "one_more", "two_more", "twice_as_many")
    )
    counts = (4, 8, 16, 32)
    assert f"| micro-batches | {' | '.join(map(str, counts))} |" in text
    gpipe, own = ([in_flight(most, batches=count) for count in counts] for most in (hill, stairs))
    for name, runs in (("GPipe", gpipe), ("1F1B", own)):
        assert f"| {name}: elements | {' | '.join(f'{int(done.memory):,}' for done in runs)} |" in text
        assert f"| {name}: ticks | {' | '.join(str(done.time) for done in runs)} |" in text
        took = f"{runs[1].time} ticks, {int(runs[1].memory):,} elements"
        assert f"[{name}: {took}](picture:" in text
    first = gpipe[:3]
    with_4, with_8, with_16 = (f"{int(done.memory):,}" for done in first)
    assert f"comes to {with_4} elements with 4 micro-batches, {with_8} with 8, and {with_16} with 16." in text
    assert f"GPipe takes {gpipe[1].time} ticks for them, which is nearly good enough, and {with_8} elements" in text
    free = [(count + 3) * (2 + 2) + 1 for count in counts]  # test_closed_forms.py holds the formula
    assert f"| both, if messages took no time: ticks | {' | '.join(f'{ticks}.0' for ticks in free)} |" in text
    for name, most in (("4, 3, 2, 1", stairs), ("5, 4, 3, 1: one more", one_more), ("6, 5, 4, 1: two more", two_more)):
        both = [in_flight(most, hidden) for hidden in ("", "sends and receives")]
        figures = " | ".join(f"{done.time} ticks, {int(done.memory):,} elements" for done in both)
        assert f"| {name} | {figures} |" in text
        assert name.startswith(", ".join(str(most(model)) for model in both[0].models))
    late, hidden = [in_flight(most, "sends and receives", 32).time for most in (one_more, twice)]
    assert f"5, 4, 3, 1 take {late} ticks." in text and f"7, 5, 3, 1, it is {hidden}, which is the bound" in text
    assert hidden == 2 * 3 * 2.4 + 32 * 4 + 1


def test_thin_stages_and_thick_ones_take_what_puzzle_14_says() -> None:
    text = text_of("p14_interleaved")
    thick, thin = program("p06_gpipe", "one_forward_one_backward"), program("p14_interleaved", "interleaved")
    assert f"1F1B with one thick stage takes {run(thick, **ROUNDS).time:g}." in text
    free = run(thin, **ROUNDS, cost=Cost(send=0, receive=0))
    assert f"[Two thin stages a rank: {free.time:g} ticks]" in text
    for name, time, idle in (("in_one_piece", 45, 27), ("in_two_pieces", free.time, 15)):
        summary = program("p14_interleaved", name)().summary
        assert f"{time:g} ticks" in summary and f"{idle}%" in summary
    star = program("p14_interleaved", "PUZZLE")["star"]
    assert star["time"] - run(program("p14_interleaved", "interleaved_ahead"), **QUICK).time == 0.5


def test_what_no_schedule_beats_is_added_up_as_the_texts_say() -> None:
    one_stage, any_layers, halves = (puzzles()[name] for name in ("gpipe", "one_f_one_b", "zero_bubble"))
    found = {puzzle.name: bounds_of(puzzle) for puzzle in (one_stage, any_layers, halves)}
    cost, text = cost_named(any_layers.cost), text_of("p13_one_f_one_b")
    hop, each = cost.send + cost.receive, any_layers.size["layers"] // 4
    way = f"3 x ({each:g} + {hop:g}) ticks"
    assert text.count(way) == 2 and "8 x (2 + 2) ticks of work" in text
    bound = found["one_f_one_b"]
    assert bound is not None and bound.one_stage is not None
    assert bound.one_stage == 2 * 3 * (2 + Fraction(str(hop))) + 8 * (2 + 2) + 1
    assert f"+ 1 = {float(bound.one_stage)}. That is the time of the star." in text
    assert any_layers.star is not None and any_layers.star["time"] == float(bound.one_stage)
    assert bound.time == 2 * 3 * Fraction("1.4") + 8 * (2 + 2) + Fraction(1, 2)
    assert f"3 x {1 + hop:g} + {8 * 4} + 3 x {1 + hop:g} + {cost.update:g} = **{float(bound.time)} ticks**." in text
    bound = found["zero_bubble"]
    assert bound is not None and bound.time == 3 + 8 * 2 + Fraction(1, 2)
    alone = bound.time - 3
    said = f"+ 0.5 = {float(alone)} ticks. The last rank cannot begin before three forwards of others are done."
    assert f"{said} So no schedule takes less than {float(bound.time)}: that is the bound" in text_of("p16_zero_bubble")
    bound = found["gpipe"]
    assert bound is not None and bound.one_stage == Fraction(7, 4) * 16 + 2 * 3 * Fraction(str(hop)) + 1
    assert "here 7/4 of 16, which is 28 ticks, plus updates and messages" in text_of("p06_gpipe")


def test_checkpoints_across_layers_take_what_puzzle_11_says() -> None:
    text, source = text_of("p11_checkpointing"), "p11_checkpointing"
    cost = Cost(backward=2, activation_elements=16 * HIDDEN * LENGTH)
    choices = (1, 2, 3, 4, 5, 8, 16)
    across = program(source, "across_layers")
    done = {every: run(partial(across, every=every), layers=16, cost=cost) for every in choices}
    others = 2 * 16 * cost.weight_elements
    assert f"| ticks | {' | '.join(f'{done[every].time:g}' for every in choices)} |" in text
    at_peak = [(done[every].memory - others) / cost.activation_elements for every in choices]
    assert f"| activations at the peak | {' | '.join(f'{count:g}' for count in map(float, at_peak))} |" in text
    for every, said in ((1, "Every input is kept"), (4, "Every fourth input is kept")):
        assert f"[{said}: {done[every].time:g} ticks, {done[every].memory:,} elements]" in text
    kept = run(program(source, "last_segment_kept"), layers=16, cost=cost)
    assert kept.memory == done[4].memory
    assert f"saves {done[4].time - kept.time:g} ticks of the {16 - 4}, in the same memory" in text
    deep = {every: run(partial(across, every=every), layers=36, cost=cost) for every in range(1, 37)}
    least = min(one.memory for one in deep.values())
    best = [every for every, one in deep.items() if one.memory == least]
    activations = (least - 2 * 36 * cost.weight_elements) // cost.activation_elements
    assert (best, activations) == ([5, 6, 7, 8], 12)
    assert "every 5, 6, 7 and 8 take 12 activations. The fastest of these is 5" in text
    assert all(deep[5].time < deep[every].time for every in best[1:])


def test_what_takes_pytorchs_order_takes_what_other_puzzles_say_of_it() -> None:
    ahead, plain = run(program("p12_prefetch", "prefetch"), **FOUR), run(program("p04_fsdp", "fsdp"), **FOUR)
    said = f"takes {ahead.time:g} ticks and {ahead.memory:,} elements instead of {plain.time:g} and {plain.memory:,}:"
    assert said in text_of("p04_fsdp")
    done = run(program("p13_one_f_one_b", "one_f_one_b"), **EIGHT | {"batches": 16})
    assert f"that takes {done.time:g} ticks and {done.memory:,} elements. It is puzzle 13." in text_of("p06_gpipe")


def test_what_was_recorded_of_pytorch_stands_in_its_table() -> None:
    table = (build.ROOT / "tests" / "torch_truth" / "TABLE.md").read_text(encoding="utf-8")
    for source, said, row in (
        ("p01_grad_accum", "makes 3 sums with it, and 6 without", "| DDP, 2 micro-batches, 3 layers | 6 all-reduces |"),
        ("p01_grad_accum", "makes 3 sums with it", "3 layers, no_sync() in the first | 3 all-reduces |"),
        ("p02_ddp", "in three buckets, of 1, 25 and 14 layers", "| 39AR 14-38AR 0-13AR U |"),
        ("p04_fsdp", "starts 12 gathers and 6 reduce-scatters", "1 micro-batch | 12 all-gathers, 6 reduce-scatters |"),
        ("p04_fsdp", "There are 6 gathers then", "not wrapped | 6 all-gathers, 6 reduce-scatters |"),
        ("p08_replica_fsdp", "makes 12 all-reduces across", "12 reduce-scatters, 12 all-reduces |"),
        ("p08_replica_fsdp", "and 6 with that call", "12 reduce-scatters, 6 all-reduces |"),
        (
            "p10_zero2",
            "12 all-gathers and 12 reduce-scatters",
            "2 micro-batches | 12 all-gathers, 12 reduce-scatters |",
        ),
        ("p12_prefetch", "12 gathers and 6 sums, in the order", "1 micro-batch | 12 all-gathers, 6 reduce-scatters |"),
    ):
        assert said in text_of(source) and row in table, (source, said)


def test_texts_name_the_version_of_pytorch_that_was_recorded() -> None:
    named = [found for source in SOLUTIONS for found in re.findall(r"PyTorch (\d[\d.]*\d)", text_of(source))]
    assert len(named) >= 10 and {*named} == {TORCH}


COURSE_PROGRAMS = {"interleaved": "p14_interleaved", "one_f_one_b": "p13_one_f_one_b"}


def test_the_examples_of_real_machines_give_what_they_say() -> None:
    part = (build.ROOT / "docs" / "real-machines.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", part, re.DOTALL))
    names: dict[str, Any] = {name: program(source, name) for name, source in COURSE_PROGRAMS.items()}
    names["print"] = lambda *said: None
    exec(code, names)
    said = re.findall(r"^((?:done|best)\.[^#]*)  # (.*)$", code, re.MULTILINE)
    assert [expression for expression, _ in said][:4] == ["done.seconds", "done.bytes / 2**30", "done.fits", "done.mfu"]
    assert len(said) == 5
    for expression, shown in said:
        value = eval(expression, names)
        assert (f"{value:.1f}" if isinstance(value, float) and "%" not in shown else str(value)) == shown
    measured = next(row for row in MEGATRON if row.model == names["GPT_175B"]).present
    assert f"NVIDIA measured {measured} seconds for this step" in part
    assert f"at most {100 * FITS:.0f} percent" in part


def test_the_table_of_offload_is_what_hosts_of_other_speeds_make_of_it() -> None:
    updates, text = (2, 3, 4, 5.5, 6, 8), text_of("p22_offload")
    assert f"| an update takes | {' | '.join(f'{update:g}' for update in updates)} |" in text
    for name, said in (("offload", "micro-batch by micro-batch"), ("offload_by_layer", "layer by layer")):
        times = [program("p22_offload", "on_the_card")(program("p22_offload", name), update).time for update in updates]
        assert f"| {said} | {' | '.join(f'{time:g}' for time in times)} |" in text


def test_offload_completes_its_first_gradient_and_the_next_ones_when_the_text_says() -> None:
    for name, first, between in (("offload", 33, 3), ("offload_by_layer", 18, 6)):
        log = run(program("p22_offload", name), **HOST).models[0].log
        with_the_last = [event.issued for event in log if event.kind == "pass_to" and 1 in event.batches]
        assert with_the_last == [first + between * turn for turn in range(6)]
    text = text_of("p22_offload")
    assert "is there at tick 18 and not at 33, and the next one comes every 6 ticks" in text


def test_the_table_of_buckets_is_what_hops_of_other_lengths_make_of_it() -> None:
    counts, text = (24, 12, 8, 6, 4, 3, 2, 1), text_of("p19_buckets")
    assert f"| buckets | {' | '.join(map(str, counts))} |" in text
    with_buckets = program("p19_buckets", "with_buckets")
    for latency in (0.02, 0.1, 0.5):
        times = [with_buckets([24 // count] * count, latency).time for count in counts]
        best = sqrt(24 * 2 / (HOPS * latency))
        row = [f"{one:g}" for one in times] + [f"{best:.1f}".removesuffix(".0")]
        assert f"| a hop takes {latency:g} ticks | {' | '.join(row)} |" in text
        nearest = min(counts, key=lambda count: abs(count - best))
        assert times[counts.index(nearest)] <= 1.01 * min(times)
        if latency == cost_named("long_hops").latency_across:
            assert f"[A call for each layer: {times[0]:g} ticks]" in text
            assert f"[One call at the end: {times[-1]:g} ticks]" in text


def test_pytorch_begins_with_a_small_bucket_as_quoted() -> None:
    table = (build.ROOT / "tests" / "torch_truth" / "TABLE.md").read_text(encoding="utf-8")
    assert "| DDP, 40 layers of 1 MiB | 39AR 14-38AR 0-13AR U |" in table
    assert f"the calls have 1, {38 - 14 + 1} and {13 + 1} layers" in text_of("p19_buckets")


def test_the_sums_in_nodes_take_what_their_table_says() -> None:
    """A layer waits for its sum, so a step takes eight of them, besides computing; hops and bytes are the formula's."""
    text = text_of("p20_hierarchical")
    for name, row in (
        ("flat_ring", "| 30 x 0.1 | 2 |"),
        ("everything_across", "| 6 x 0.03 + 6 x 0.1 | 0.16 + 1.6 |"),
        ("hierarchical", "| 6 x 0.03 + 6 x 0.1 | 0.16 + 0.4 |"),
    ):
        took = run(program("p20_hierarchical", name), **LEVELS).time
        assert f"{row} {took / 8 - 3.5:.2f}".removesuffix(".00").removesuffix("0") + " |" in text
        parts = row.strip("| ").replace(" x ", "*").replace("|", "+")
        assert eval(parts) == pytest.approx(took / 8 - 3.5)


def test_large_flat_rings_win_where_each_card_has_one_as_quoted() -> None:
    small, large = three_ways(64e6), three_ways(1e9)
    assert min(small) == small[2] and min(large) == large[1]
    assert "For 1 GB the eight flat rings win" in text_of("p20_hierarchical")
    shared = 2 * ring(64, 64e6, 10e-6, 25e9), 2 * ring(8, 64e6, 3e-6, 240e9) + 2 * ring(8, 64e6, 10e-6, 25e9)
    assert shared[1] < shared[0]  # eight GPUs at one card
