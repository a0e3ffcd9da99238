"""A layer in three steps, with numbers."""

from typing import Any, NoReturn

from ..basics.errors import PuzzleError


class Steps:
    """The six steps: not on real tensors yet."""

    def project(self, inp: Any, weight: Any) -> Any:
        _refuse("project")

    def attend(self, att: Any, kv: Any) -> Any:
        _refuse("attend")

    def rest(self, inp: Any, weight: Any, att: Any) -> Any:
        _refuse("rest")

    def backward_rest(self, inp: Any, grad: Any, weight: Any, att: Any) -> Any:
        _refuse("backward_rest")

    def backward_attend(self, att_grad: Any, kv: Any) -> Any:
        _refuse("backward_attend")

    def backward_project(self, inp: Any, grad: Any, weight: Any, att_grad: Any, kv_grad: Any) -> Any:
        _refuse("backward_project")


def _refuse(verb: str) -> NoReturn:
    problem, fix = f"{verb} does not run on real tensors yet", "run it on the simulated machine, without engine=..."
    raise PuzzleError(problem, fix=fix)
