"""The memory of a schedule: why it peaks, what is held when, and that all of it can be seen."""

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from drawing import Figure, draw
from drawing.ink import theme
from drawing.ink.trace import Trace, trace_of
from drawing.schedule.layout import Layout
from drawing.schedule.memory import ABOVE, HEIGHTS, LABELED, zones_of
from drawing.schedule.peak import held_at, moment
from lib import Cost, Model, RingCost, run
from lib.record.figures.score import memory_parts, peak, peak_event
from lib.record.kinds import MEMORY_KINDS
from lib.record.labels import Labels
from tests.drawing_events import SVG, event, parse, sharded_run, staged_run, texts, titles, trace
from tests.plain_programs import inputs_at_will
from tests.programs import solutions
from tests.test_chain import SMALL, played, random_runs


def amount(text: str) -> Fraction:
    """The elements in a text such as "1,179,648"."""
    return Fraction(text.replace(",", ""))


def check_peak(made: Trace, highest: Any) -> None:
    """What is held at the peak adds up to it, exactly, and counts are those of whole tensors."""
    top = made.peak
    if top is None:
        return
    assert sum(memory_parts(top).values()) == top.memory == highest
    held = held_at(top, made)
    assert sum(part.elements for part in held) == highest
    assert [part.kind for part in held] == sorted(memory_parts(top), key=lambda kind: -memory_parts(top)[kind])
    if made.models:
        cost = made.models[0].dist.cost
        for part in held:
            counted = re.match(r"(about )?([\d.]+(?:e\+\d+)?) ", part.text)
            if counted:
                of = cost.activation_elements if "activation" in part.text else cost.weight_elements
                assert float(counted[2]) * of == pytest.approx(float(part.elements), rel=5e-3)
                assert bool(counted[1]) == (Fraction(counted[2]) * of != part.elements)
                assert part.text.endswith("s") == (counted[2] != "1")


@pytest.mark.parametrize(("fn", "spec"), SMALL)
def test_the_parts_of_the_peak_of_a_solution(fn: Callable[[Model], Any], spec: dict[str, Any]) -> None:
    done = played(fn, spec)
    check_peak(trace_of(done), done.memory)
    assert peak_event(done.device_events) == trace_of(done).peak


@pytest.mark.long
@pytest.mark.usefixtures(inputs_at_will.__name__)
def test_the_parts_of_the_peak_of_random_programs() -> None:
    kinds = set()
    for _, _, done in random_runs():
        check_peak(trace_of(done), peak(done.events))
        top = peak_event(done.events)
        kinds |= set(memory_parts(top)) if top is not None else set()
    assert {"weights", "activations", "in_flight"} <= kinds


MOMENTS = {
    "gpipe": "backward layer 6, mb 0 ends, and send to rank 2 begins",
    "fsdp": "backward layer 5 begins",
    "ddp": "backward layer 1 ends, and all-reduce layer 1 begins",
    "pipeline": "forward layer 1, mb 0-3 ends, and send to rank 1 begins",
    "basic": "loss, mb 0-3 begins",
}
PARTS = {
    "gpipe": [("9 activations", 1179648), ("2 weights", 524288), ("2 optimizer states", 524288),
              ("2 weight gradients", 524288), ("1 activation gradient", 131072)],
    "fsdp": [("6 activations", 786432), ("2.5 weights", 655360), ("1.5 optimizer states", 393216),
             ("1 activation gradient", 131072)],
}  # fmt: skip


@pytest.mark.parametrize("name", MOMENTS)
def test_the_label_names_what_happens_at_the_peak(name: str) -> None:
    done = next(played(fn, spec) for fn, spec in solutions() if spec["name"] == name)
    figure, made = draw(done), trace_of(done)
    said = [text for text in texts(figure) if text.startswith("peak ") and ": " in text]
    assert [text.partition(": ")[2] for text in said] == [MOMENTS[name]]
    assert made.peak is not None
    alone = moment(made.peak, made)
    assert f"Memory of rank {made.peak.rank} is highest as {alone}: " in figure.summary
    hover = next(title for title in titles(figure) if title.startswith("peak: "))
    assert hover.splitlines()[1] == alone
    assert sum(amount(line.rpartition(": ")[2]) for line in hover.splitlines()[2:]) == done.memory
    if name in PARTS:
        assert [(part.text, part.elements) for part in held_at(made.peak, made)] == PARTS[name]


def test_moments_that_are_no_operations_are_named() -> None:
    low, high = (1, 0, 0, 0, 0, 0, 0), (9, 0, 0, 0, 0, 0, 0)
    begins = event(0, "forward", 0, 2, held=low)
    for last, said in (
        (event(0, "end", 2, 2, None, (), high), "the end of the program"),
        (event(0, "load_weights", 2, 2, 3, (), high), "load_weights layer 3"),
        (event(0, "get_activation", 2, 2, None, (1,), high), "get_activation"),
        (event(0, "backward", 2, 3, 1, (1,), high), "backward layer 1, mb 1 begins"),
        (event(0, "pass_to", 2, 3, 1, (1,), high, op=(1,), group=(0, 5)),
         "forward layer 0, mb 0 ends, and send to rank 5 begins"),
        (event(0, "receive", 2.5, 3, 1, (1,), high, op=(1,), group=(4, 0)), "receive from rank 4 begins"),
        (event(0, "allgather", 2.5, 3, 1, (1,), high, op=(1,), group=(0, 1)), "all-gather layer 1 begins"),
    ):  # fmt: skip
        made = trace([begins, last])
        assert made.peak is last and moment(last, made) == said


def test_tensors_are_counted_only_where_all_have_one_size() -> None:
    def words(cost: Cost) -> str:
        made = trace_of(staged_run(cost=cost))
        assert made.peak is not None
        return " ".join(part.text for part in held_at(made.peak, made))

    class Odd(Cost):
        def elements(self, labels: Labels) -> Any:
            return 7 * super().elements(labels)

    assert re.search(r"\d activations", words(Cost())) and re.search(r"\d weight", words(RingCost()))
    assert not re.search(r"\d", words(Odd()))
    inner = words(Cost(saved_elements=1000))
    assert re.search(r"\d weight", inner) and not re.search(r"\d activations", inner)
    alone = trace([event(0, "forward", 0, 1)])
    assert alone.peak is not None and not re.search(r"\d", " ".join(p.text for p in held_at(alone.peak, alone)))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("kind", MEMORY_KINDS)
def test_every_kind_of_memory_stands_out_from_its_ground(kind: str, scheme: int) -> None:
    ground = theme.ROLES["card"][scheme]
    assert theme.contrast(theme.MEMORY[kind][1], ground) >= 1.2  # and a line of ink is along their total


def zone_texts(figure: Figure) -> Iterator[tuple[str, list[str]]]:
    for title in titles(figure):
        head, *lines = title.splitlines()
        if re.match(r"ranks? [\d, -]+, (from )?tick [\d.]+(, with the most here)?: ", head):
            yield head, lines


def test_the_pointer_on_a_strip_reads_what_is_held_there() -> None:
    figure = draw(staged_run())
    said = list(zone_texts(figure))
    assert len(said) > 20
    for head, lines in said:
        total = amount(re.search(r": ([\d,]+) elements$", head)[1])  # type: ignore[index]
        assert sum(amount(line.rpartition(" ")[2]) for line in lines) == total, (head, lines)
    assert not any("at most" in title for title in titles(figure))
    assert {head.partition(",")[0] for head, _ in said} == {f"rank {rank}" for rank in range(4)}


def test_zones_cover_the_strip_and_forget_no_maximum() -> None:
    random = Random(3)
    samples = [
        event(0, "forward", at / 7, at / 7 + 0.1, held=(random.randrange(9), 0, 0, random.randrange(9), 0, 0, 0))
        for at in range(700)
    ]
    layout = Layout(trace(samples), 980, 74)
    for least in (6.0, 16.0):
        zones = zones_of(layout, samples, least)
        assert zones[0][0] == layout.x0 and zones[-1][1] == layout.x1
        assert all(a[1] == b[0] for a, b in pairwise(zones))
        assert all(end - start >= least - 1e-9 for start, end, _ in zones[:-1])
        assert max(e.memory for _, _, held in zones for e in held) == max(e.memory for e in samples)
    assert zones_of(layout, [], 6.0) == []


def test_the_rank_with_the_peak_is_first_and_all_have_one_scale() -> None:
    figure = draw(staged_run())
    names = [e for e in parse(figure).iter(SVG + "text") if (e.text or "").startswith("rank ")]
    assert figure.area is not None
    order = [e.text for e in names if float(e.get("y", 0)) > figure.area[3]]
    assert order == ["rank 3", "rank 0", "rank 1", "rank 2"]
    frames = (path.get("d", "") for path in parse(figure).iter(SVG + "path") if path.get("fill") == theme.CARD)
    frame = next(path for path in frames if path.count("z") == 4)
    heights = [float(h) for h in re.findall(r"h798v([\d.]+)h-798", frame)]
    assert heights[0] - LABELED == heights[1] - ABOVE == heights[2] - ABOVE == HEIGHTS[4]  # with room for a label


@pytest.mark.parametrize("ranks", [4, 64, 1024])
def test_many_ranks_that_are_alike_share_one_strip(ranks: int) -> None:
    figure = draw(sharded_run(ranks, 2))
    assert len(list(re.finditer(r"max \d", " ".join(texts(figure))))) == 1
    assert sum(text.startswith("peak ") and "begins" in text for text in texts(figure)) == 1
    assert len(figure.svg()) < 250_000


def test_a_run_with_nothing_in_memory_has_no_panel() -> None:
    nothing = trace([event(0, "forward", 0, 1, held=(0,) * 7)])
    assert "Memory" not in texts(draw(nothing)) and "is highest as" not in draw(nothing).summary
    few = run(lambda model: model, 1)
    assert "is highest as" not in draw(few).summary


def test_weights_and_adapters_are_not_counted_together() -> None:
    """They are of two sizes: what is held is said without a number, and activations still have theirs."""
    fn, spec = next((fn, spec) for fn, spec in solutions() if spec["name"] == "lora")
    made = trace_of(run(fn, **spec["size"]))
    assert made.peak is not None
    said = [held.text for held in held_at(made.peak, made)]
    assert {"weights", "optimizer states", "6 activations"} <= set(said)
