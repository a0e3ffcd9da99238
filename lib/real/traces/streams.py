"""A file of JSON as a stream of its entries: a file of any size takes as much memory as its largest entry. And a pickle
that may only have plain data in it: to load any other one would run whatever its author has put there."""

import gzip
import pickle
import re
import zlib
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import Any, NoReturn, cast

from ...basics.errors import PuzzleError

ENTRIES = "traceEvents"
"""The name of the list whose entries come one by one."""
PIECE = 1 << 20
"""So many bytes are read at once."""
LARGEST = 1 << 26
"""Letters of one entry at most: a file with a longer one is damaged."""
PROFILE = 'the file that export_chrome_trace("rank0.json.gz") has written'
GZIP = b"\x1f\x8b"
MOST_TIMES = 200
"""Times of its own size that a packed file may unpack to, beyond what one entry may have: profiles take 10 to 20."""
_BLANKS = re.compile(r"[ \t\r\n]*")


def opened(path: Path) -> BufferedReader:
    """Return a file for reading, unpacked if it is compressed, whatever it is called. Raise PuzzleError if it cannot be
    read."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
        return cast("BufferedReader", gzip.open(path, "rb")) if packed else path.open("rb")
    except OSError as error:
        problem = f"{path.name} cannot be read: {error.strerror or error}"
        raise PuzzleError(problem, where="trace", expected='trace("rank*.json.gz")', line="") from None


def damaged(path: Path, problem: str, expected: str = "") -> PuzzleError:
    """Return the error for a file in which something is wrong."""
    expected = expected or "a whole file: it may have been cut off as it was exported, or copied"
    return PuzzleError(f"{path.name} {problem}", where="trace", expected=expected, line="")


@contextmanager
def values_of(path: Path) -> Iterator[None]:
    """Raise PuzzleError for a value of the file that is none, such as a number of thousands of digits, or a text where
    a number should be."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"has a value that cannot be read: {type(error).__name__}: {str(error)[:120]}"
        raise damaged(path, problem, "values as profilers write them: take it out, or write the file anew") from None


def entries_of(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield what a file in the Trace Event Format has: each value beside its name, and each entry of its list of events
    beside the name ``traceEvents``, of which the first is None. Raise PuzzleError if it is no JSON, or ends too
    soon."""
    with opened(path) as file:
        yield from _Text(path, file).entries()


class _Text:
    """The text of a file, of which a part is in memory. ``at``: where in that part the next value begins."""

    def __init__(self, path: Path, file: BufferedReader) -> None:
        self.path, self.file = path, file
        self.failed: Exception | None = None
        self.text, self.at, self.before, self.over = "", 0, 0, False
        self.decoded = getincrementaldecoder("utf-8")("replace").decode
        self.value = JSONDecoder(strict=False).raw_decode  # names of kernels may have control characters
        self.most = LARGEST + MOST_TIMES * path.stat().st_size

    def read(self, size: int) -> bytes:
        """Return so many bytes, or less at the end, and before a place where the file is damaged."""
        pieces: list[bytes] = []
        while size > 0 and self.failed is None:
            try:
                pieces.append(self.file.read1(size))  # what comes before an error is good
            except (EOFError, OSError, zlib.error) as error:
                self.failed = error
                break
            if not pieces[-1]:
                break
            size -= len(pieces[-1])
        return b"".join(pieces)

    def more(self) -> bool:
        """Read on, and forget what was read. Return whether there was anything left."""
        piece = self.read(PIECE + len(self.text) - self.at)  # a long entry is read in few pieces
        if not piece and self.failed is not None:
            problem = "is cut off" if isinstance(self.failed, EOFError) else f"is damaged: {self.failed}"
            raise damaged(self.path, f"{problem} after {self.before + self.at:,} letters")
        self.over = not piece
        self.before += self.at
        if self.before > self.most:
            raise damaged(self.path, f"unpacks to more than {MOST_TIMES} times its size, as no profile does", PROFILE)
        self.text, self.at = self.text[self.at :] + self.decoded(piece, self.over), 0
        return not self.over

    def peek(self) -> str:
        """Return the next letter that is not blank, or an empty text at the end."""
        while True:
            blanks = _BLANKS.match(self.text, self.at)
            assert blanks is not None
            self.at = blanks.end()
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def take(self, letters: str, expected: str) -> str:
        """Go over one of these letters, and return it. Raise PuzzleError for another."""
        found = self.peek()
        if not found or found not in letters:
            raise self.wrong(f"where {expected} should be" if found else "")
        self.at += 1
        return found

    def wrong(self, where: str = "") -> PuzzleError:
        """Return the error for this place."""
        place = f"after {self.before + self.at:,} letters"
        if self.over and self.at >= len(self.text) - 1:
            return damaged(self.path, f"is cut off {place}")
        near = self.text[self.at : self.at + 24].strip()
        return damaged(self.path, f"is no JSON {place}{where and ', ' + where}: {near!r}")

    def next(self) -> Any:
        """Return the next value, read as a whole."""
        self.peek()
        while True:
            try:
                value, end = self.value(self.text, self.at)
            except (JSONDecodeError, RecursionError):
                end = len(self.text)
                value = None
            except ValueError:  # a number of more digits than Python takes
                self.value = JSONDecoder(strict=False, parse_int=float).raw_decode
                continue
            if end < len(self.text):  # or else a number may go on
                self.at = end
                return value
            if self.over:
                self.at = len(self.text) if self.cut() else self.at
                raise self.wrong()
            if len(self.text) - self.at > LARGEST:
                raise self.wrong()
            self.more()

    def cut(self) -> bool:
        """Return whether the value at this place would be right, if the file went on."""
        try:
            self.value(self.text, self.at)
        except JSONDecodeError as error:
            return error.pos >= len(self.text) - 1 or "Unterminated" in error.msg
        except RecursionError:
            return False
        return True

    def entries(self) -> Iterator[tuple[str, Any]]:
        """Yield names and values (see ``entries_of``)."""
        start = self.peek()
        if start == "[":  # the list alone is a trace as well
            yield from self.list_of(ENTRIES)
            return
        if start != "{":
            problem = "is empty" if not start else f"is no JSON: it begins with {self.text[self.at : self.at + 24]!r}"
            raise damaged(self.path, problem, PROFILE)
        self.at += 1
        if self.peek() == "}":
            return
        while True:
            if self.peek() != '"':
                raise self.wrong("where a name should be")
            name = self.next()
            self.take(":", "a colon")
            if name == ENTRIES and self.peek() == "[":
                yield from self.list_of(name)
            else:
                yield name, self.next()
            if self.take(",}", "a comma or the end") == "}":
                return

    def list_of(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield None, and then the entries of a list, each beside its name."""
        yield name, None
        self.at += 1
        if self.peek() == "]":
            self.at += 1
            return
        while True:
            yield name, self.next()
            if self.take(",]", "a comma or the end of the list") == "]":
                return


class _NotPlain(Exception):
    """Raised at the name of something that would be loaded."""


class _Plain(pickle.Unpickler):
    """An unpickler that makes numbers, texts, lists, tuples, sets and dicts, and nothing else."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise _NotPlain(f"{module}.{name}")


def plain_pickle(path: Path) -> Any:
    """Return the data of a pickle. Raise PuzzleError if it is damaged, or has more than plain data in it."""
    with opened(path) as file:
        try:
            return _Plain(file).load()
        except _NotPlain as error:
            expected = "a dump as PyTorch has written it; a pickle that names code may run anything, and is not loaded"
            raise damaged(path, f"is a pickle of more than plain data: it names {error}", expected) from None
        except Exception as error:  # a damaged pickle may raise anything
            problem = "is cut off" if isinstance(error, EOFError) else f"is damaged: {error}"
            raise damaged(path, problem) from None
