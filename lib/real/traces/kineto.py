"""The files of PyTorch's profiler (Kineto), in the Trace Event Format.

What is read there: on a GPU, kernels and copies are work, and kernels of NCCL are calls of the network, about which
their arguments say more. On a CPU, operators are work, and spans named ``gloo:...`` are calls. What a kernel is for is
known by when the CPU has launched it: while a label was open, a node of the backward pass, or a step of the optimizer.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from math import isfinite, prod
from pathlib import Path
from typing import Any, NamedTuple

from ...record.table import SEND
from ...record.training import BACKWARD, FORWARD
from .calls import NOBODY, Call, Rank, Work, natural
from .labels import EXCHANGE, MESSAGES, STEP, WORK, Label, bytes_of, call_of, is_kernel_of_network, label_of
from .streams import ENTRIES, damaged

KERNELS = frozenset(("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"))
OPERATORS = frozenset(("cpu_op", "operator", "user_annotation", "cpu_instant_event"))
LAUNCHES = frozenset(("cuda_runtime", "cuda_driver", "runtime", "hip_runtime"))
UNREAD = re.compile(
    "gpu_user_annotation|external_correlation|python_function|overhead|trace|collective_comm|"
    "cuda_sync|cuda_event|cuda_profiler_range|gpu_pm_counter|ac2g|async_cpu_to_gpu|fwdbwd"
)
"""Kinds of events that say nothing of what is read here."""
CALLING = ("c10d::", "_c10d_functional::", "c10d_functional::", "nccl:")
"""How the names of spans begin in which a CPU calls the network."""
LAUNCHING = re.compile("launch|memcpy|memset", re.IGNORECASE)
"""What the names of launches have in them: most calls of a GPU's driver launch nothing."""
GPU_JOIN, CPU_JOIN = 2.0, 100.0
"""Microseconds between two pieces of the same work that count as work: between kernels in a row, and between operators
on a CPU, where Python works in between."""
MOST = 1 << 20
"""Ranks of a group at most."""
NODE, NETWORK, COMPUTES = range(3)
"""Operators of a CPU: those that others are inside of, and in which Python may wait, as nodes of the backward pass;
the network's; and those that compute as long as they take, whatever is inside of them."""
_LATE = 1.0
"""Microseconds by which spans of a file may stick out of those around them, since its times are rounded."""
Times = tuple[float, float]


class Span(NamedTuple):
    """A span of time. ``thread``: of the CPU; ``label``: what it says."""

    start: float
    end: float
    thread: object
    name: str = ""
    label: Any = None


class Kernel(NamedTuple):
    """What a GPU has done. ``launched``: the number that it shares with its launch."""

    start: float
    end: float
    launched: int
    stream: object
    call: int = -1
    """Its place among the calls of the network, or -1."""


class Done(NamedTuple):
    """What a device has done: the moment of its launch, and for how long it ``computes``."""

    moment: float
    start: float
    end: float
    stream: object = None
    computes: float = 0.0


class Raw:
    """What a file says, before it is known which of its steps is wanted. It is filled entry by entry, and keeps what is
    needed of each: the file itself is never in memory."""

    def __init__(self, path: Path) -> None:
        self.path, self.about = path, dict[str, Any]()
        self.steps: dict[int, Span] = {}
        self.labels: list[Span] = []
        self.kernels: list[Kernel] = []
        self.launches: dict[int, tuple[float, object]] = {}
        self.operators: dict[object, tuple[array[float], array[float], array[int]]] = {}
        """By thread: starts, ends, and what each is: ``NODE``, ``NETWORK`` or ``COMPUTES``."""
        self.calls: list[Call] = []
        self.of_gloo: list[tuple[Call, object, bool]] = []
        self.sent: list[tuple[Span, str, Any]] = []
        self.described: dict[int, dict[str, Any]] = {}
        """What the CPU's side of a call of NCCL says, by the number that it shares with its kernels."""
        self.comms: list[Span] = []
        """When it says so, each beside that."""
        self.unknown = Counter[str]()
        """How many events there are of each kind that is not known here."""

    def add(self, name: str, value: Any) -> None:
        """Take one entry of the file (in ``streams.values_of``)."""
        if name != ENTRIES:
            self.about[name] = value
            return
        if isinstance(value, dict) and value.get("ph") == "X":
            self._span(value)

    def _span(self, value: dict[str, Any]) -> None:
        """Take an event that lasts."""
        if "ts" not in value:
            raise damaged(self.path, f"has an event without a time: {str(value)[:120]}")
        start = float(value["ts"])
        span = Span(start, start + max(0.0, float(value.get("dur", 0))), value.get("tid"), str(value.get("name", "")))
        if not isfinite(span.end):
            raise ValueError("a time that is no number")
        hash(span.thread)
        args, kind = value.get("args"), str(value.get("cat", "")).lower()
        args = args if isinstance(args, dict) else {}
        if kind in KERNELS:
            self._kernel(span, args)
        elif kind in LAUNCHES:
            if "correlation" in args and LAUNCHING.search(span.name):
                self.launches[int(args["correlation"])] = span.start, span.thread
        elif kind in OPERATORS:
            self._operator(span, args, kind)
        elif not UNREAD.fullmatch(kind):
            self.unknown[kind or "none"] += 1

    def _kernel(self, span: Span, args: dict[str, Any]) -> None:
        call = -1
        if is_kernel_of_network(span.name):
            call = len(self.calls)
            named = args if "Collective name" in args else self.described.get(int(args.get("External id", -1)), args)
            self.calls.append(self._call(span, named))
        self.kernels.append(Kernel(span.start, span.end, int(args.get("correlation", -1)), span.thread, call))

    def _operator(self, span: Span, args: dict[str, Any], kind: str) -> None:
        if found := STEP.match(span.name):
            self.steps[int(found[1])] = span
        elif span.name == "record_param_comms":
            self.described[int(args.get("External id", -1))] = args
            self.comms.append(span._replace(label=args))
        elif span.name.startswith("gloo:"):
            self._gloo(span, args)
        else:
            label = label_of(span.name)
            if label is not None:
                self.labels.append(span._replace(label=label, name="" if kind == "cpu_op" else span.name))
            network = span.name.startswith(CALLING)
            if network:
                self.sent.append((span, span.name, args.get("Concrete Inputs")))
            if kind in ("cpu_op", "operator") and span.end > span.start:
                if span.thread not in self.operators:
                    self.operators[span.thread] = array("d"), array("d"), array("b")
                starts, ends, whats = self.operators[span.thread]
                starts.append(span.start)
                ends.append(span.end)
                node = "::" not in span.name or "autograd::" in span.name
                whats.append(NETWORK if network else NODE if node else COMPUTES)

    def _gloo(self, span: Span, args: dict[str, Any]) -> None:
        """Take a call of gloo, which says neither group nor peer; with record_shapes=True it says its sizes."""
        known = [one for one in args.get("Input Dims") or () if isinstance(one, list)]
        counts = [prod(size if isinstance(size, int) else 0 for size in one) for one in known]
        kinds = args.get("Input type") or [""]
        call = Call(call_of(span.name), span.start, span.end)
        call.size = sum(bytes_of(count, kind) for count, kind in zip(counts, kinds, strict=False))
        self.of_gloo.append((call, span.thread, call.kind in MESSAGES))
        self.calls.append(call)

    def _call(self, span: Span, args: dict[str, Any]) -> Call:
        """Return a call of NCCL, from the arguments of its kernel or of its CPU's side."""
        name = str(args.get("Collective name") or span.name)
        call = Call(call_of(name) or call_of(span.name), span.start, span.end)
        call.group_name = str(args.get("Process Group Name", ""))
        call.group = ranks_of(args.get("Process Group Ranks"), args)
        call.number = natural(args.get("Seq"), 1 << 62) if call.kind not in MESSAGES else None
        own, far = self._rank_said(), args.get("Dst Rank" if call.kind == SEND.kind else "Src Rank")
        if call.kind in MESSAGES and own is not None and far is not None and str(far).isdigit():
            call.ends = (own, int(far)) if call.kind == SEND.kind else (int(far), own)
        counts = [int(args.get(key) or 0) for key in ("In msg nelems", "Out msg nelems")]
        call.size = bytes_of(max(counts), args.get("dtype"))
        return call

    # -- when all of the file is read -------------------------------------------------------

    @property
    def distributed(self) -> dict[str, Any]:
        """What the file says of all ranks."""
        found = self.about.get("distributedInfo")
        return found if isinstance(found, dict) else {}

    def _rank_said(self) -> int | None:
        return natural(self.distributed.get("rank"))

    def rank(self) -> int | None:
        """Return the rank of a file: what it says itself, or else the number in its name."""
        known = self._rank_said()
        return rank_named(self.path) if known is None else known

    def groups(self) -> dict[str, tuple[int, ...]]:
        """Return the ranks of each process group that the file describes, by its name."""
        config = self.distributed.get("pg_config") or ()
        return groups_of((one.get("pg_name"), one) for one in config if isinstance(one, dict))

    @cached_property
    def begun(self) -> dict[int, float]:
        """When each step begins that has any work, by number: on a GPU with its first kernel on the stream on which it
        computes longest, or on any, once what was launched before it is over. An input that is fetched beside the work
        of the step before does not begin it."""
        begun, did = {}, self._did
        moments, over = [one.moment for one in did], [*accumulate((one.end for one in did), max)]
        for number, step in self.steps.items():
            first, last = (bisect_left(moments, moment) for moment in (step.start, step.end))
            busy = Counter[object]()
            for one in did[first:last]:
                busy[one.stream] += one.computes  # type: ignore[assignment]
            before = over[first - 1] if first else float("-inf")
            longest = max(busy, key=busy.__getitem__, default=None)
            if own := [one.start for one in did[first:last] if one.stream == longest or one.start >= before]:
                begun[number] = min(own)
        return begun

    @cached_property
    def _did(self) -> list[Done]:
        """What the device did, in the order in which it was launched; on a CPU, all of it is one stream."""
        found = []
        for kernel in self.kernels:
            moment, thread = self._launched(kernel)
            if thread is not None or not self.launches:
                computes = kernel.end - kernel.start if kernel.call < 0 else 0.0
                found.append(Done(moment, kernel.start, kernel.end, kernel.stream, computes))
        if not self.kernels:
            spans = [both for starts, ends, _ in self.operators.values() for both in zip(starts, ends, strict=True)]
            spans += [(call.start, call.end or call.start) for call in self.calls]
            spans += [(span.start, span.end) for span in self.labels if span.label is not None and span.label.whole]
            found = [Done(start, start, end) for start, end in spans]
        return sorted(found, key=lambda one: one.moment)

    def _launched(self, kernel: Kernel) -> tuple[float, object]:
        """Return when a kernel was launched, and on which thread: None if the file does not say so."""
        return self.launches.get(kernel.launched, (kernel.start, None))

    def step(self, rank: int, wanted: int | None) -> Rank:
        """Return one step of a rank, or all of the file where it has no steps."""
        distributed, groups, labels = self.distributed, self.groups(), _Labels(self.labels)
        world = natural(distributed.get("world_size"))
        step = self.steps[wanted] if wanted is not None else Span(float("-inf"), float("inf"), None)
        base = self.about.get("baseTimeNanoseconds")
        backend, count = str(distributed.get("backend", "")), len(set(groups.values())) or 1
        device = str((self.about.get("deviceProperties") or [{}])[0].get("name", ""))
        found = Rank(rank, self.path.name, natural(base, 1 << 63) or 0, world, backend, device, count)
        for call in self.calls:
            if call.group is None:
                call.group = groups.get(call.group_name)
        if world is not None and rank >= world:
            found.problems.append(f"{self.path.name}: it is of rank {rank}, and there are {world} ranks, it says")
        found.unknown = self.unknown
        self._join_messages(rank, found.world)
        calls = [(call.start, call) for call in (self.calls if not self.kernels else [one[0] for one in self.of_gloo])]
        if self.kernels:
            found.work, of_gpu = self._of_gpu(labels)
            calls = [*of_gpu, *calls]
            unknown = sum(step.start <= one.start < step.end and self._launched(one)[1] is None for one in self.kernels)
            if unknown and self.launches:
                found.notes.append(f"{self.path.name}: kernels without a launch, so what for is not known: {unknown}")
        else:
            found.work = self._of_cpu(labels)
        for moment, call in calls:
            (found.calls if step.start <= moment < step.end else found.others).append(call)
        if wanted is not None:
            found.begins = self.begun[wanted]
            found.next = min((at for number, at in self.begun.items() if number > wanted), default=None)
            found.ends = max(one.end for one in self._did if step.start <= one.moment < step.end)
        return found

    def _of_gpu(self, labels: "_Labels") -> tuple[list[Work], list[tuple[float, Call]]]:
        """Return the work of a GPU, and its calls, each beside the moment in which it was launched. Calls may launch
        copies as well: to the host and back for gloo, and on the GPU itself where NCCL needs no more. These belong to
        the call, and are no work."""
        pieces, calls = [], list[tuple[float, Call]]()
        named = [span._replace(label=span.name) for span, *_ in self.sent]
        named += [
            Span(one.start, one.end or 0.0, thread, "gloo", "gloo") for one, thread, far in self.of_gloo if not far
        ]
        called, described = _by_thread(named), _by_thread(self.comms)
        copies = defaultdict[int, list[Kernel]](list)  # by what the CPU's side of their call says
        with_kernels = set[int]()
        for kernel in self.kernels:
            moment, thread = self._launched(kernel)
            about, inside = (_open(known.get(thread, NOTHING), moment) for known in (described, called))
            if kernel.call >= 0:
                call = self.calls[kernel.call]
                if call.kind == EXCHANGE and inside:
                    call.kind = call_of(inside) or EXCHANGE  # all-to-alls are sends and receives there
                calls.append((moment, call))
                with_kernels.add(id(about))
            elif about:
                copies[id(about)].append(kernel)
            elif not inside:
                pieces.append((kernel.start, kernel.end, labels.at(thread, moment)))
        for span in self.comms:
            own = copies[id(span.label)] if id(span.label) not in with_kernels else []
            if own and span.label.get("Collective name"):
                call = self._call(Span(min(one.start for one in own), max(one.end for one in own), None), span.label)
                call.group = call.group or self.groups().get(call.group_name)
                calls.append((span.start, call))
        return joined(pieces, GPU_JOIN), calls

    def _of_cpu(self, labels: "_Labels") -> list[Work]:
        pieces = []
        busy = united((call.start, call.end) for call in self.calls if call.end is not None)
        for thread, (starts, stops, whats) in self.operators.items():
            order = sorted(range(len(starts)), key=lambda at: (starts[at], -stops[at]))
            waits = self._waits(thread, order, busy)
            over = float("-inf")
            for at in order:
                if starts[at] < over - _LATE:
                    continue  # inside of one that was taken
                over = stops[at]
                if whats[at] != NETWORK:
                    label = labels.at(thread, starts[at])
                    pieces += [(start, end, label) for start, end in without((starts[at], over), waits)]
        pieces += [(span.start, span.end, span.label) for span in self.labels if span.label and span.label.whole]
        return joined(pieces, CPU_JOIN)

    def _waits(self, thread: object, order: Sequence[int], busy: Sequence[Times]) -> list[Times]:
        """Return when a thread waits for the network inside of an operator, as in a node of the backward pass in which
        FSDP waits for weights: when no operator that is inside of it works, and a call is under way, or is made there.
        ``order``: of its operators; ``busy``: when calls of the network are under way."""
        starts, stops, whats = self.operators[thread]
        calls, work = list[Times](), list[Times]()
        over = float("-inf")  # until when a call of the network is open: whatever is inside of it is its own
        for at, after in zip(order, [*order[1:], None], strict=True):
            if starts[at] < over:
                continue
            if whats[at] == NETWORK:
                calls.append((starts[at], stops[at]))
                over = stops[at]
            elif whats[at] == COMPUTES or after is None or starts[after] >= stops[at] - _LATE:
                work.append((starts[at], stops[at]))  # or else it waits, maybe, between those inside of it
        worked = [(float("-inf"), float("-inf")), *united(work), (float("inf"), float("inf"))]
        for (_, since), (until, _) in pairwise(worked):
            if until - since > CPU_JOIN:
                first, last = (bisect_right(busy, moment, key=lambda call: call[0]) for moment in (since, until))
                calls += [(max(since, one), min(until, two)) for one, two in busy[max(0, first - 1) : last]]
        return united(call for call in calls if call[1] - call[0] > CPU_JOIN)

    def _join_messages(self, rank: int, world: int | None) -> None:
        """Find out with whom messages of gloo are exchanged, and since when: the operator around a call has it."""
        ends = {True: "c10d::send", False: "c10d::recv_"}
        spans = defaultdict[tuple[bool, object], list[tuple[float, float, Any]]](list)
        for span, name, inputs in self.sent:
            for sends, operator in ends.items():
                if name == operator:
                    spans[sends, span.thread].append((span.start, span.end, inputs))
        for own in spans.values():
            own.sort(key=lambda one: one[0])
        for call, thread, message in self.of_gloo:
            if not message:
                continue
            sends = call.kind == SEND.kind
            around = spans[sends, thread]
            at = bisect_right(around, call.start, key=lambda one: one[0]) - 1
            far = 1 - rank if world == 2 else None
            if at >= 0 and around[at][1] >= call.start - _LATE:
                call.start = around[at][0]
                inputs = around[at][2]
                peer = inputs[2] if isinstance(inputs, list) and len(inputs) > 2 else ""
                far = int(peer) if str(peer).isdigit() else far
            if far is not None:
                call.ends = (rank, far) if sends else (far, rank)


def rank_named(path: Path) -> int | None:
    """Return the rank in the name of a file, or else the last number in it."""
    named = re.search(r"rank\W?_?(\d+)", path.name, re.IGNORECASE)
    found = named or re.search(r"(\d+)\D*$", path.name.split(".")[0])
    return int(found[1]) if found else None


def groups_of(config: Iterable[tuple[Any, Any]]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each group whose ranks are known, by its name, of names and what a file says of each."""
    known = [(str(name), ranks_of(about.get("ranks"), about)) for name, about in config if isinstance(about, dict)]
    return {name: ranks for name, ranks in known if ranks}


def ranks_of(text: Any, args: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the ranks of a group, as a profile writes them: a list, or its text, which is cut short where it is long
    and then follows from its first rank, its stride and its size; None if they are not known.

    >>> ranks_of("[0, 2]", {}), ranks_of("[0, 1, ..., 7]", {"Group size": 8, "Global rank stride": 1})
    ((0, 2), (0, 1, 2, 3, 4, 5, 6, 7))
    """
    if isinstance(text, (list, tuple)):
        return tuple(one for one in text if natural(one) is not None) or None
    numbers = [int(one) for one in re.findall(r"\d+", text)] if isinstance(text, str) else []
    if numbers and "..." not in text:
        return tuple(numbers)
    size, stride = natural(args.get("Group size", args.get("pg_size")), MOST), natural(args.get("Global rank stride"))
    first = natural(args.get("Global rank start", numbers[0] if numbers else None))
    if size and stride and first is not None:
        return tuple(range(first, first + size * stride, stride))
    return None


class _Labels:
    """Which label is open on which thread at which moment: the one that was opened last. PyTorch's backward pass of a
    GPU has a thread of its own, on which nodes are open and no labels; there the label counts that is open where the
    pass was begun."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.known = _by_thread(spans)
        named = [span for span in spans if span.name and span.label and span.label.kind.startswith(BACKWARD.kind)]
        self.backward = _changes(named)
        kinds = {span.label.kind for span in spans if span.label is not None}
        # Where someone has labeled forwards, all else is something else. Where only the rest is labeled, by PyTorch,
        # what is neither backward nor update is the forward pass.
        self.other = Label(WORK if FORWARD.kind in kinds or not kinds else FORWARD.kind)

    def at(self, thread: object, moment: float) -> Label:
        """Return the label for what happens on a thread at a moment."""
        found = _open(self.known.get(thread, NOTHING), moment)
        if found is not None and found.kind == BACKWARD.kind and found[1:3] == (None, NOBODY):
            found = _open(self.backward, moment) or found
        return found or self.other


Changes = tuple[Sequence[float], Sequence[Any]]
NOTHING: Changes = ((), ())


def _open(changes: Changes, moment: float) -> Any:
    at = bisect_right(changes[0], moment) - 1
    return changes[1][at] if at >= 0 else None


def _by_thread(spans: Iterable[Span]) -> dict[object, Changes]:
    by_thread = defaultdict[object, list[Span]](list)
    for span in spans:
        by_thread[span.thread].append(span)
    return {thread: _changes(own) for thread, own in by_thread.items()}


def _changes(spans: list[Span]) -> Changes:
    """Return the moments at which the label of a thread changes, and the label from then on."""
    moments: list[float] = []
    labels: list[Any] = []
    open_: list[Span] = []

    def close(until: float) -> None:
        while open_ and open_[-1].end <= until:
            ended = open_.pop()
            moments.append(ended.end)
            labels.append(open_[-1].label if open_ else None)

    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        close(span.start)
        around = open_[-1].label if open_ and not span.name else None
        if around is not None and around.kind.startswith(BACKWARD.kind):
            continue  # a node of the backward pass, inside of what names its layer
        moments.append(span.start)
        labels.append(span.label)
        open_.append(span)
    close(float("inf"))
    return moments, labels


def united(spans: Iterable[Times]) -> list[Times]:
    """Return times that do not overlap, in order: of (5, 6), (0, 2), (1, 3) it makes (0, 3), (5, 6)."""
    found = list[Times]()
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def without(span: Times, others: Sequence[Times]) -> Iterator[Times]:
    """Yield what is left of a span without others, which are in order and do not overlap."""
    start, end = span
    for one, two in others[bisect_left(others, start, key=lambda other: other[1]) :]:
        if one >= end:
            break
        if one > start:
            yield start, one
        start = max(start, two)
    if start < end:
        yield start, end


def joined(pieces: Iterable[tuple[float, float, Label]], room: float) -> list[Work]:
    """Return work that does not overlap: pieces that follow each other within ``room`` microseconds, for the same end,
    are one, and where two are done at once, the time counts for the one that began first."""
    found: list[Work] = []
    start = end = float("-inf")
    label: Label | None = None
    for begins, ends, what in sorted(pieces, key=lambda piece: piece[:2]):
        if label is not None and what[:3] == label[:3] and begins <= end + room:
            end = max(end, ends)
            continue
        if ends <= end:
            continue
        if label is not None:
            found.append(Work(label.kind, start, end, label.layer, label.batches))
        start, end, label = max(begins, end), ends, what
    if label is not None:
        found.append(Work(label.kind, start, end, label.layer, label.batches))
    return found
