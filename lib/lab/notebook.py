"""``reset``, for a notebook."""

from ..basics.errors import PuzzleError
from ..basics.folders import BLANKS
from ..grading.notebook import Words
from .copies import NotDone, find_blank, home, told
from .copies import reset as begin_again

ELSEWHERE = "Keep a copy, and take the notebook again from where you had it."


def reset(puzzle: object) -> Words:
    """Keeps your notebook of a puzzle under another name, and puts the blank in its place.

    ``puzzle``: its name or number. Raises PuzzleError for an unknown puzzle, and where your notebook is no file beside
    this one, as in Colab, or is the only blank that there is.
    """
    try:
        if not BLANKS.is_dir():
            raise NotDone(f"the blank notebooks are not here. {ELSEWHERE}")
        name, folder = find_blank(str(getattr(puzzle, "__name__", puzzle))).name, home()
        if folder.resolve() == BLANKS:
            raise NotDone(f"{name} here is the blank itself, and git restores it")
        if not (folder / name).is_file():
            raise NotDone(f"there is no {name} of yours in this folder. {ELSEWHERE}")
        return Words(told(*begin_again(folder, name)))
    except (NotDone, OSError) as error:
        raise PuzzleError(str(error), line="") from None
