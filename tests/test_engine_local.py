"""Every solution, unmodified, with real tensors in this process: right numbers, the same log, the same memory."""

import importlib
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lib import Deadlock, Model, PuzzleError, Run, run
from lib.course.specs import puzzles
from lib.machine.outcome import Outcome
from lib.running.workload import KINDS, TOLERANCES
from tests.marks import needs_torch
from tests.programs import layers_of, solutions
from tests.slow import some
from tests.test_values import SIZE, WRONG, hybrid

ROOT = Path(__file__).parent.parent
RUN = importlib.import_module("lib.running.run")  # in `lib`, that name is the function's


def examples() -> list[Any]:
    """The solutions, and the programs that the notebooks show besides them."""
    cases = [pytest.param(fn, spec["size"], id=spec["name"]) for fn, spec in solutions(small=True)]
    four, nodes = {"ranks": 4, "batches": 4}, {"mesh": {"replica": 2, "shard": 4}, "node_size": 4}
    cube = {"mesh": {"replica": 2, "shard": 2, "tensor": 2}, "node_size": 4}
    for module, name, size in (
        ("p02_ddp", "ddp_overlap", {**four, "layers": 2}),
        ("p03_wsdp", "wsdp_prefetch", {**four, "layers": 6}),
        ("p06_gpipe", "one_forward_one_backward", {**four, "layers": 8}),
        ("p06_gpipe", "pipeline", {**four, "layers": 8}),
        ("p08_replica_fsdp", "fsdp_on_nodes", {"ranks": 8, "layers": 6, "batches": 16, **nodes}),
        *(("repairs", name, puzzles()[name].size) for name in ("repair_experts", "repair_zigzag")),
        ("p17_tensor_parallel", "replica_fsdp_tensor", {"ranks": 8, "layers": 3, "batches": 8, **cube}),
    ):
        program = getattr(importlib.import_module(f"solutions.{module}"), name)
        cases.append(pytest.param(program, size, id=f"{module}:{name}"))
    return cases


EXAMPLES = examples()
IN_PIECES = {"replica_fsdp_tensor", *(one["name"] for _, one in solutions() if "partial=True" in one.get("words", ()))}


def real(fn: Callable[[Model], Any], size: dict[str, Any], **how: Any) -> Any:
    """With the first kind of layer that the program can train, if none is named."""
    return run(fn, **size, timeout=None, engine="local", **{"layer": layers_of(fn, size)[0], **how})


DENSE = [kind for kind in KINDS if kind != "experts"]


def in_all_ways() -> Iterator[Any]:
    """Each program, with each precision and each kind of layer that it can train. Of these, `make quick` has the last
    of each program, which is the strictest: blocks, or experts, in double precision."""
    for example in EXAMPLES:
        *others, last = itertools.product(TOLERANCES, layers_of(*example.values))
        for way in some(others, 3):
            yield pytest.param(*example.values, *way, id="-".join([example.id, *way]), marks=pytest.mark.long)
        yield pytest.param(*example.values, *last, id="-".join([example.id, *last]))


@needs_torch
@pytest.mark.parametrize(("fn", "size", "dtype", "layer"), [*in_all_ways()])
def test_the_numbers_are_right(
    fn: Any, size: dict[str, Any], dtype: str, layer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if layer == "block" and fn.__name__ in IN_PIECES:
        with pytest.raises(PuzzleError, match="a layer of kind 'block' is not computed in pieces here"):
            real(fn, size, dtype=dtype, layer=layer, hidden=32)
        return
    result = real(fn, size, dtype=dtype, layer=layer, hidden=32)
    result.check()
    assert capsys.readouterr().out.startswith(f"Correct! With real tensors (local, {layer}, {dtype}) off by ")
    assert result.agreement.relative <= {"float32": 1e-4, "float64": 1e-10}[dtype]
    assert result.agreement.spread == 0  # replicas are equal to the last bit
    assert result.agreement.relative > 0  # which it would not be if the reference were the engine itself
    assert (result.engine, result.dtype) == ("local", dtype) and result.wall > 0


@needs_torch
@pytest.mark.parametrize(("layer", "hidden"), [("mlp", 1), ("mlp", 5), ("mlp", 17), ("block", 5)])
def test_sizes_that_nothing_divides(layer: str, hidden: int) -> None:
    for fn, spec in solutions(small=True):
        if spec["name"] in ("wsdp", "fsdp", "pipeline_fsdp", "replica_fsdp"):
            real(fn, spec["size"], layer=layer, hidden=hidden, length=3, seed=4, dtype="float64").check()


@needs_torch
@pytest.mark.parametrize(("fn", "size"), EXAMPLES)
def test_log_time_memory_and_fingerprints_are_those_of_the_simulated_run(fn: Any, size: dict[str, Any]) -> None:
    simulated, found = run(fn, **size), real(fn, size)
    assert found.events == simulated.events and len(found.events) > size["ranks"]
    assert found.agreement.relative < TOLERANCES["float32"] / 8  # rounding does not grow with the depth of a model
    assert (found.time, found.memory, found.name) == (simulated.time, simulated.memory, simulated.name)
    assert found.final_states == simulated.final_states
    assert str(found) == str(simulated)
    assert isinstance(found, Run)
    assert [model.lines() for model in found.models] == [model.lines() for model in simulated.models]


@needs_torch
@pytest.mark.parametrize("name", ["ddp", "pipeline_fsdp"])
def test_the_order_in_which_ranks_start_changes_no_bit(name: str) -> None:
    fn, spec = next((fn, spec) for fn, spec in solutions(small=True) if spec["name"] == name)
    ranks = spec["size"]["ranks"]
    first, second = (real(fn, spec["size"], _order=order) for order in (range(ranks), range(ranks)[::-1]))
    assert first.events == second.events
    assert first.agreement == second.agreement


@needs_torch
@pytest.mark.parametrize("layer", DENSE)
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_what_the_fingerprints_find_the_numbers_find_too(wrong: dict[str, Any], layer: str) -> None:
    honest = real(hybrid(), SIZE, _strict=False, layer=layer)
    assert honest.agreement.ok
    agreement = real(hybrid(**wrong), SIZE, _strict=False, layer=layer).agreement
    assert not agreement.ok
    assert not agreement.relative <= 1e-2  # far from any tolerance
    with pytest.raises(PuzzleError, match=r"wrong numbers|different numbers"):
        agreement.check()


def one_step(
    grads: Callable[[Model, Any], Any] = lambda model, grad: grad,
    weights: Callable[[Model], tuple[int, int]] = lambda model: (0, 1),
    stale: bool = False,
) -> Callable[[Model], Any]:
    """Two layers on one rank, with something done to the gradient of layer 0, or to the weights that backward gets."""

    def program(model: Model) -> None:
        for layer in range(2):
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        model.activations[0] = model.get_activation(range(model.BATCHES))
        for layer in range(2):
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], model.weights[layer])
        model.grad_activations[0] = model.loss(model.activations[2])
        for layer in (1, 0):
            weight = model.weights[weights(model)[layer]]
            model.grad_weights[0], model.grad_activations[0] = model.backward(
                layer, model.activations[layer], model.grad_activations[0], weight
            )
            if layer == 0:
                model.grad_weights[0] = grads(model, model.grad_weights[0])
            model.weights["new"], model.opt_states[layer] = model.update(
                layer, model.grad_weights[0], model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights["new"])
            if stale:
                model.weights[0] = model.weights["new"]  # of layer 1, then taken for that of layer 0

    return program


@needs_torch
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_mistakes_that_no_shape_gives_away(dtype: str) -> None:
    size = {"ranks": 1, "layers": 2, "batches": 4}
    how: dict[str, Any] = {"_strict": False, "dtype": dtype}
    real(one_step(), size, **how).check()
    wrong = {
        "doubled": one_step(lambda model, grad: grad + grad),
        "zero": one_step(lambda model, grad: model.fake_grad(0, [])),
        "weight of another layer": one_step(weights=lambda model: (1, 1)),
        "stale": one_step(stale=True),
    }
    for name, program in wrong.items():
        result = real(program, size, **how)
        assert result.agreement.relative > 0.05, name
        with pytest.raises(PuzzleError, match="wrong"):
            result.agreement.check()
        with pytest.raises(PuzzleError):
            result.check()


@needs_torch
def test_numbers_that_are_wrong_fail_though_the_fingerprints_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two are judged apart: an engine whose sums are off by a little, or nan, is found out."""
    from lib.engines.numbers import Numbers, Value

    fn, spec = next((fn, spec) for fn, spec in solutions() if spec["name"] == "ddp")
    add = Numbers.add
    for factor in (1.001, float("nan")):

        def off(self: Numbers, values: Any, factor: float = factor) -> Value:
            total = add(self, values)
            return total._replace(flat=total.flat * factor)  # type: ignore[union-attr]

        with monkeypatch.context() as patch:
            patch.setattr(Numbers, "add", off)
            result = real(fn, spec["size"])
        Outcome.verify(result)
        with pytest.raises(PuzzleError, match="wrong numbers"):
            result.check()


@needs_torch
def test_models_of_a_real_run_pass_the_check_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    Model.check(real(one_step(), {"ranks": 1, "layers": 2, "batches": 1}).models)
    assert capsys.readouterr().out == "Correct!\n"


@needs_torch
def test_errors_of_a_run_are_those_of_the_simulated_run() -> None:
    async def stuck(model: Model) -> None:
        await model.receive()

    def twice(model: Model) -> None:
        one_step(lambda model, grad: grad + grad)(model)

    for program, kind in ((stuck, Deadlock), (twice, PuzzleError)):
        texts = []
        for engine in ("simulated", "local"):
            with pytest.raises(kind) as caught:
                run(program, ranks=1, layers=2, batches=1, engine=engine)
            texts.append(str(caught.value))
        assert texts[0] == texts[1]
    with pytest.raises(PuzzleError, match="not attempted"):
        run(lambda model: None, engine="local").check()


def nothing(model: Model) -> None:
    pass


@pytest.mark.parametrize("engine", ["simulated", "processes"])
@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("layer", "conv", "'mlp' or 'block'"),
        ("dtype", "float16", "'float32' or 'float64'"),
        ("hidden", 0, "from 1 up"),
        ("hidden", 64.0, "from 1 up"),
        ("length", True, "from 1 up"),
        ("seed", -1, "from 0 up"),
        ("device", "tpu", "'auto' or 'cpu'"),
        ("pace", -1, "from 0 up"),
    ],
)
def test_bad_options_are_refused_by_every_engine(engine: str, option: str, value: Any, says: str) -> None:
    with pytest.raises(PuzzleError, match=option) as caught:
        run(nothing, engine=engine, **{option: value})
    assert says in str(caught.value)
    assert f"got:      {value!r}" in str(caught.value)
    assert caught.value.line.endswith("run(nothing, engine=engine, **{option: value})")


@pytest.mark.parametrize(
    ("engine", "missing"), [("local", "torch"), ("processes", "torch"), ("processes", "cloudpickle")]
)
def test_without_torch_a_line_says_what_to_install(engine: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str, package: str | None = None) -> Any:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(RUN, "import_module", absent)
    with pytest.raises(PuzzleError) as caught:
        run(nothing, engine=engine)
    text = str(caught.value)
    assert "\n" not in text and missing in text and "pip install torch cloudpickle (torch's CPU build is enough" in text
    run(nothing)  # the simulator asks for nothing


@pytest.mark.process
def test_lib_runs_without_torch_and_never_imports_it_by_itself() -> None:
    program = """if True:
        import sys
        sys.modules["torch"] = None  # importing it fails
        from lib import Model, PuzzleError, run
        def nothing(model: Model) -> None: ...
        print(run(nothing))
        assert not [name for name in sys.modules if name.startswith("lib.engines")]
        try:
            run(nothing, engine="local")
        except PuzzleError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == "nothing: not attempted yet"
    assert second.startswith('engine="local" needs torch, which is not installed here: pip install torch cloudpickle')
