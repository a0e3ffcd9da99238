"""One action of a pipeline schedule, in the words of torch.distributed.pipelining (``_Action`` in its schedules.py).

>>> print(read_action("2SEND_F0"), read_action(" 0REDUCE_GRAD "), read_action("0F1_1B0"))
2SEND_F0 0REDUCE_GRAD (0F1;1B0)OVERLAP_F_B
"""

import re
from typing import NamedTuple

FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = "F", "B", "I", "W"
SEND_F, RECV_F, SEND_B, RECV_B = "SEND_F", "RECV_F", "SEND_B", "RECV_B"
UNSHARD, RESHARD, REDUCE_GRAD = "UNSHARD", "RESHARD", "REDUCE_GRAD"
OVERLAP = "OVERLAP_F_B"

BACKWARDS = (BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)
COMPUTED = (FORWARD, *BACKWARDS)
SENDS, RECEIVES = (SEND_F, SEND_B), (RECV_F, RECV_B)
OF_WEIGHTS = (UNSHARD, RESHARD, REDUCE_GRAD)
KINDS = (*COMPUTED, *SENDS, *RECEIVES, *OF_WEIGHTS)

_ACTION = re.compile(rf"(\d+)({'|'.join(sorted(KINDS, key=len, reverse=True))})(\d*)")
_PAIR = re.compile(rf"\((\w+);(\w+)\){OVERLAP}|(\d+F\d+)_(\d+[{BACKWARD}{BACKWARD_INPUT}{BACKWARD_WEIGHT}]\d+)")


class Action(NamedTuple):
    """A stage, what is done there, and for which micro-batch. What concerns a stage's weights (UNSHARD, RESHARD,
    REDUCE_GRAD) has no micro-batch. In an overlapped pair, ``both`` has the two actions, the forward
    first."""

    stage: int
    kind: str
    micro_batch: int | None = None
    both: tuple["Action", ...] = ()

    def __str__(self) -> str:
        if self.both:
            return f"({';'.join(map(str, self.both))}){OVERLAP}"
        return f"{self.stage}{self.kind}{'' if self.micro_batch is None else self.micro_batch}"

    def parts(self) -> tuple["Action", ...]:
        """The two actions of an overlapped pair, or the action alone."""
        return self.both or (self,)


def read_action(text: str) -> Action | None:
    """Return the action that a text stands for, or None if it stands for none."""
    text = text.strip()
    if pair := _PAIR.fullmatch(text):
        both = [one for text in pair.groups() if text is not None and (one := read_action(text)) is not None]
        if len(both) == 2 and both[0].kind == FORWARD and both[1].kind in BACKWARDS:
            return Action(-1, OVERLAP, None, tuple(both))
        return None
    if (match := _ACTION.fullmatch(text)) is None or (match[2] in OF_WEIGHTS) is bool(match[3]):
        return None
    return Action(int(match[1]), match[2], int(match[3]) if match[3] else None)
