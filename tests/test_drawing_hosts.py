"""Hosts in pictures: a row below their devices, memory apart, figures of devices only."""

import json
import re

import pytest

from drawing import compare, draw, perfetto, play
from drawing.ink.trace import trace_of
from drawing.schedule.layout import Layout
from lib import run
from lib.running.run import Run
from tests.drawing_events import data, texts, titles
from tests.test_hosts import offload, one_host


def four(**more: int) -> Run:
    return run(offload, ranks=4, layers=2, batches=2, **{"hosts": 4, **more})


def names(done: Run) -> list[str]:
    return [row.name for row in Layout(trace_of(done), 900.0, 0.0).rows]


def test_a_host_has_a_row_below_its_device() -> None:
    assert names(four()) == [f"{of}rank {rank}" for rank in range(4) for of in ("", "host of ")]
    shown = texts(draw(four()))
    assert "host of rank 3" in shown and "4 ranks · 2 layers · 2 micro-batches · 4 hosts" in shown
    assert "rank 7, host of rank 3" in titles(draw(four()))


def test_a_node_has_its_hosts_inside() -> None:
    nodes = four(node_size=2)
    layout = Layout(trace_of(nodes), 900.0, 0.0)
    assert [layout.node_of(row) for row in layout.rows] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert {"node 0: ranks 0, 1", "node 1: ranks 2, 3"} <= set(titles(draw(nodes)))
    assert trace_of(nodes).traffic(between=True) == 0 < trace_of(nodes).traffic(between=False)


def test_of_many_the_hosts_share_a_row_that_is_theirs() -> None:
    many = run(offload, ranks=24, hosts=24, layers=1, batches=1)
    assert names(many) == ["ranks 0-23", "hosts of ranks 0-23"]
    assert "hosts of ranks 0-23" in texts(draw(many))


def test_memory_of_hosts_is_apart_and_on_a_scale_of_its_own() -> None:
    done = one_host(layers=6, batches=1)
    shown, said = texts(draw(done)), titles(draw(done))
    assert "Memory of hosts, on its own scale" in shown
    assert [title.split("\n")[0] for title in said if title.startswith("peak: ")] == [
        f"peak: {done.memory:,} elements on rank 0 at tick {_tick(done, 0)}",
        f"peak: {done.host_memory:,} elements on rank 1 at tick {_tick(done, 1)}",
    ]
    assert any(re.match(r"rank 1, host of rank 0, .*\n(.*\n)?optimizer states [\d,]+$", title, re.M) for title in said)
    assert "Memory of hosts, on its own scale" not in texts(
        draw(run(offload, ranks=1, layers=1, hosts=1), memory=False)
    )


def _tick(done: Run, rank: int) -> str:
    own = [event for event in done.events if event.rank == rank]
    return f"{max(own, key=lambda event: event.memory).issued:g}"


def test_shares_of_time_are_those_of_devices() -> None:
    done = one_host(batches=1)
    trace = trace_of(done)
    of_device = [event for event in done.events if event.rank == 0 and event.stream]
    assert trace.ranks == 1 and trace.peak is not None and trace.peak.memory == done.memory
    busy = sum(event.length for event in of_device if event.stream == "compute")
    assert 1 - trace.idle >= busy / done.time > 0
    assert trace.idle + trace.communication - trace.hidden + busy / done.time == pytest.approx(1)
    assert f"on a host {done.host_memory:,} elements" in draw(done).summary


def test_compare_has_a_column_of_hosts_only_with_hosts() -> None:
    with_hosts, plain = one_host(), run(lambda model: model.load_weights(0) and None, ranks=2)
    assert "on a host" in texts(compare(with_hosts, with_hosts))
    assert "on a host" not in texts(compare(plain, plain))


def test_the_player_measures_a_host_by_its_own_memory() -> None:
    done = one_host()
    device, host = data(play(done))["rows"]
    assert (device["name"], host["name"]) == ("rank 0", "host of rank 0")
    assert (device["full"], host["full"]) == (0, pytest.approx(1.02 * done.host_memory))


def test_perfetto_names_hosts_and_sorts_them_below() -> None:
    entries = json.loads(perfetto(four()))["traceEvents"]
    named = {entry["pid"]: entry["args"]["name"] for entry in entries if entry["name"] == "process_name"}
    order = {entry["pid"]: entry["args"]["sort_index"] for entry in entries if entry["name"] == "process_sort_index"}
    assert named[4] == "rank 4, host of rank 0" and named[1] == "rank 1"
    assert sorted(order, key=order.__getitem__) == [0, 4, 1, 5, 2, 6, 3, 7]


def test_a_device_waits_for_its_host_and_says_so() -> None:
    said = titles(draw(four()))
    assert any(title.startswith("rank 0 waits for its host\n") for title in said)
    assert any(title.startswith("rank 4, host of rank 0 waits for rank 0\n") for title in said)
    assert "waits for its host" in play(four()).page
