"""Files that are written completely or not at all, and by one process at a time."""

import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    if sys.platform == "win32":
        import msvcrt
    else:
        from fcntl import LOCK_EX, LOCK_NB, flock
    LOCKS = True
except ImportError:  # in a browser, whose fcntl has no locks: one process is all there is
    LOCKS = False

PATIENCE = 5.0  # seconds that somebody waits for a lock, at most
PAUSE = 0.01  # seconds between two looks at it
BUSY = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
"""What the system says while another process holds a lock. Whatever else it says means that it has no locks there."""
DEVICES = ("/dev/", "/proc/")


def write_whole(path: Path, text: str) -> None:
    """Write a file completely or not at all: what was there stays until all of the new text is on the disk.

    Devices and pipes are written to as they are, and so is a file in a folder where no other may be made. Links are
    followed. Raises OSError.
    """
    place = Path(os.path.realpath(path))
    if str(path).startswith(DEVICES) or (place.exists() and not place.is_file()):
        path.write_text(text, encoding="utf-8")
        return
    try:
        with complete(place, text) as new:
            if place.exists():
                shutil.copymode(place, new)
            os.replace(new, place)
    except PermissionError:
        if not place.is_file():
            raise
        place.write_text(text, encoding="utf-8")


@contextmanager
def complete(target: Path, text: str) -> Iterator[Path]:
    """Give a finished file beside the target, to be moved into place. It is gone afterwards, whatever happens."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.chmod(0o644)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def write_all(files: Mapping[Path, str]) -> None:
    """Write files so that readers see an old text or a new one, never half of it. If one cannot be
    written, all stay as they were."""
    with ExitStack() as finished:
        moves = []
        for target, text in files.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            moves.append((finished.enter_context(complete(target, text)), target))
        for file, target in moves:
            os.replace(file, target)


def write_new(target: Path, text: str) -> bool:
    """Write the target whole unless something is there already. Return whether it was written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with complete(target, text) as finished:
        return give_name(finished, target)


def give_name(file: Path, name: Path) -> bool:
    """Let the file be known by a second name as well, unless that name is taken. Return whether it is."""
    try:
        os.link(file, name)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links: claim the name first, then fill it
        try:
            name.touch(exist_ok=False)
        except FileExistsError:
            return False
        os.replace(file, name)
    return True


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Hold the lock of a file, for which the others wait.

    It is a lock of the system, on a small file beside that one, so nobody holds it longer than they live. Whoever keeps
    it longer than PATIENCE is not waited for, and where there can be no lock, there is none: what it protects is done
    in any case.
    """
    lock = _taken(path.with_name(f".{path.name}.lock"))
    try:
        yield
    finally:
        if lock is not None:
            with suppress(OSError):  # on Windows, while others wait for it
                os.unlink(lock.name)  # first, so that nobody takes a lock that is about to go without seeing that
            lock.close()


def _taken(path: Path) -> IO[bytes] | None:
    """Return the file of a lock once it is ours, or None if it does not become so."""
    deadline = time.monotonic() + PATIENCE
    while LOCKS:
        try:
            file = open(path, "ab")  # noqa: SIM115 (closed by its user)
        except OSError:  # a folder where nothing can be written
            return None
        try:
            _lock(file)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):  # else its last user has removed it
                return file
        except OSError as error:
            if error.errno not in (*BUSY, errno.ENOENT):
                deadline = 0.0
        file.close()
        if time.monotonic() > deadline:
            break
        time.sleep(PAUSE)
    return None


def _lock(file: IO[bytes]) -> None:
    """Lock a file, or raise OSError. To close it unlocks it."""
    if sys.platform == "win32":
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        flock(file, LOCK_EX | LOCK_NB)
