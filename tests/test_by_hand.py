"""A notebook of the older kind, worked by hand: its habits go on working (our own words, its habits)."""

import asyncio

import pytest

from drawing import draw, draw_group
from lib import Deadlock, Dist, Model, PuzzleError, Weight, WeightGrad, run


def test_a_tour_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # cells are run again and again
        model = Model(layers=2, batches=4, rank=0, dist=Dist(1))
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        model.weights[1], model.opt_states[1] = model.load_weights(1)
        model.weights[0], model.opt_states[0] = model.load_weights(0)
        model.activations[0] = model.get_activation([0, 2, 3])
        model.activations[1] = model.forward(layer=0, inp=model.activations[0], weight=model.weights[0])
        model.activations[2] = model.forward(layer=1, inp=model.activations[1], weight=model.weights[1])
        model.grad_activations[2] = model.loss(model.activations[2])
        model.grad_weights[1], model.grad_activations[1] = model.backward(
            1, model.activations[1], model.grad_activations[2], model.weights[1]
        )
        del model.grad_activations[2], model.activations[2]
        model.grad_weights[0], model.grad_activations[0] = model.backward(
            0, model.activations[0], model.grad_activations[1], model.weights[0]
        )
        model.status()
        try:
            model.update(0, weight_grad=model.grad_weights[0], weight=model.weights[0], opt_state=model.opt_states[0])
        except AssertionError as error:
            print(error)
        for layer in range(2):
            grad = model.grad_weights[layer] + model.fake_grad(layer, [1])
            weight, state = model.update(layer, grad, model.weights[layer], model.opt_states[layer])
            model.weights[layer], model.opt_states[layer] = weight, state
            model.set_final_weight(layer, weight)
        Model.check([model])
        assert "Correct!" in capsys.readouterr().out
        assert draw([model]).summary and draw_group(model.weights).summary


def test_tensors_of_one_machine_in_another() -> None:
    """Shards loaded by one Model are gathered by Models of another Dist, with other sizes."""
    source = Model(layers=2, batches=1)
    shards = [source.load_weights(0, rank, 3)[0] for rank in range(3)]
    source.weights["kept"] = shards[0]

    async def gather(model: Model) -> Weight:
        return await model.allgather(shards[model.rank], 0)

    async def everyone() -> list[Weight]:
        dist = Dist(3)
        return list(await asyncio.gather(*[gather(Model(rank, dist, 6, 3)) for rank in range(3)]))

    for _ in range(2):
        source.weights["again"] = source.load_weights(0)[0]
        assert all(weight.is_complete() for weight in asyncio.run(everyone()))


def test_made_up_gradients_are_reduced() -> None:
    async def reduce(model: Model) -> tuple[WeightGrad, WeightGrad]:
        grad = model.fake_grad(0, [model.rank])
        total = await model.allreduce(grad, 0)
        piece = await model.scatterreduce(WeightGrad(0, 1, [model.rank], 4), 0)
        return total, piece

    async def everyone() -> list[tuple[WeightGrad, WeightGrad]]:
        dist = Dist(4)
        return list(await asyncio.gather(*[reduce(Model(rank, dist, 1, 4)) for rank in range(4)]))

    for rank, (total, piece) in enumerate(asyncio.run(everyone())):
        assert total.batches == {0, 1, 2, 3}
        assert (piece.shards, piece.total) == ({rank}, 4)


def test_a_machine_whose_ranks_are_made_again() -> None:
    """The Dist stands in one cell, the ranks in another that is run twice; the first time it fails."""
    dist = Dist(2)

    async def half(model: Model) -> None:
        if model.rank == 0:
            await model.allreduce(model.fake_grad(0, [0]), 0)

    async def full(model: Model) -> WeightGrad:
        return await model.allreduce(model.fake_grad(0, [model.rank]), 0)

    async def all_of(fn: object) -> list[WeightGrad]:
        return list(await asyncio.gather(*[fn(Model(rank, dist, 1, 2)) for rank in range(2)]))  # type: ignore[operator]

    with pytest.raises(AssertionError, match="deadlock"):
        asyncio.run(all_of(half))
    assert [grad.batches for grad in asyncio.run(all_of(full))] == [{0, 1}, {0, 1}]


@pytest.mark.parametrize("again", [[0], [1], [0, 1], [1, 0]])
def test_of_a_rank_that_is_made_again_no_message_is_left(again: list[int]) -> None:
    """Neither one that it has sent nor one that it has not received."""

    async def send(model: Model, text: str) -> None:
        await model.pass_to(1, text)

    async def receive(model: Model) -> str:
        return str(await model.receive(src=0))

    async def cells() -> str:
        dist = Dist(3)
        models = {rank: Model(rank, dist) for rank in range(3)}
        await asyncio.gather(send(models[0], "old"), send(models[2], "from another"))
        models |= {rank: Model(rank, dist) for rank in again}
        found = (await asyncio.gather(send(models[0], "new"), receive(models[1])))[1]
        if 1 not in again:  # what others have sent is still there
            assert await models[1].receive() == "from another"
        return found

    assert asyncio.run(cells()) == "new"


@pytest.mark.parametrize("machines", [2, 3])
def test_several_machines_at_once_do_not_wait_for_each_other(machines: int) -> None:
    async def ping(model: Model) -> None:
        if model.rank == 0:
            model.activations[0] = model.get_activation([0])
            await model.pass_to(1, model.activations[0])
        else:
            model.activations[0] = await model.receive()
            await model.receive(src=0)

    async def all_of_them() -> list[BaseException | None]:
        models = [Model(rank, dist) for dist in [Dist(2) for _ in range(machines)] for rank in range(2)]
        return await asyncio.wait_for(asyncio.gather(*map(ping, models), return_exceptions=True), 60)

    ended = asyncio.run(all_of_them())
    assert [type(end) for end in ended] == [type(None), Deadlock] * machines


def test_by_hand_a_rank_has_one_hand_until_it_communicates_as_docs_say() -> None:
    """docs/machine.md says this of several coroutines of a rank; under ``run`` it is otherwise."""

    async def both(model: Model, store: bool, wait: bool) -> None:
        async def loads() -> None:
            weight, state = model.load_weights(0)
            if store:
                model.weights[0], model.opt_states[0] = weight, state
            await asyncio.sleep(0)
            model.weights[0], model.opt_states[0] = weight, state

        async def sums() -> None:
            await model.allreduce(model.fake_grad(1, []), 1)

        if wait:
            await sums()
        await asyncio.gather(loads(), sums())

    async def by_hand(store: bool, wait: bool) -> None:
        dist = Dist(2)
        await asyncio.gather(*[both(Model(rank, dist), store, wait) for rank in range(2)])

    asyncio.run(by_hand(store=True, wait=False))
    asyncio.run(by_hand(store=False, wait=True))
    with pytest.raises(PuzzleError, match="was not stored when rank"):
        asyncio.run(by_hand(store=False, wait=False))

    async def program(model: Model) -> None:
        await both(model, store=False, wait=False)

    run(program, ranks=2)


def test_ranks_in_different_collectives_are_told_so_by_hand_where_a_later_call_is_awaited_first() -> None:
    async def program(model: Model) -> None:
        weight, _ = model.load_weights(0, model.rank, 2)
        model.weights[0] = weight
        first = model.scatterreduce(model.fake_grad(0, []), 0) if model.rank else model.allgather(weight, 0)
        model.weights[1] = await model.allgather(weight, 0)
        await first

    async def notebook() -> None:
        dist = Dist(2)
        await asyncio.gather(*[program(Model(rank, dist, 1, 2)) for rank in range(2)])

    with pytest.raises(PuzzleError, match=r"rank 0 calls allgather.* where rank 1 calls scatterreduce"):
        asyncio.run(notebook())
