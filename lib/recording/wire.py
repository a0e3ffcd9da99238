"""Lines of JSON over a socket, between the grader and a worker.

It is JSON and not pickle: to read pickle from a worker would be to run what it likes.
"""

import json
import socket
import time
from typing import Any

LONGEST = 1 << 15  # bytes of a line, at most, unless a longer one is expected
CHARACTER = 12  # bytes of a character in JSON, at most: two escapes of six

encode = json.JSONEncoder(separators=(",", ":")).encode
decode = json.JSONDecoder().decode


class ProtocolError(Exception):
    """Raised for what this library would not have written."""


def parse(line: bytes) -> Any:
    """Return what a line says. Raise ProtocolError for what is no JSON."""
    try:
        return decode(line.decode())
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"no JSON: {error}") from None


class Wire:
    """One end of a connection that carries lines of JSON."""

    def __init__(self, end: socket.socket) -> None:
        self.end, self.buffer = end, bytearray()

    def send(self, message: object, deadline: float | None = None) -> None:
        """Write a line. Raise TimeoutError after the deadline (of time.monotonic), or OSError if nobody reads."""
        self._wait_until(deadline)
        self.end.sendall(encode(message).encode() + b"\n")

    def receive(self, deadline: float | None = None, longest: int | None = LONGEST) -> Any:
        """Return what the next line says. Raise as ``receive_line`` does, and ProtocolError for what is no JSON."""
        return parse(self.receive_line(deadline, longest))

    def receive_line(self, deadline: float | None = None, longest: int | None = LONGEST) -> bytes:
        """Return the next line. Raise ProtocolError for one that is too long, EOFError if the other end is closed, or
        TimeoutError."""
        searched = 0
        while (stop := self.buffer.find(b"\n", searched)) < 0 and (longest is None or len(self.buffer) <= longest):
            searched = len(self.buffer)
            self._wait_until(deadline)
            piece = self.end.recv(1 << 16)
            if not piece:
                raise EOFError
            self.buffer += piece
        if longest is not None and not 0 <= stop <= longest:
            raise ProtocolError(f"a line of more than {longest:,} bytes")
        line = bytes(self.buffer[:stop])
        del self.buffer[: stop + 1]
        return line

    def _wait_until(self, deadline: float | None) -> None:
        if deadline is not None:
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            self.end.settimeout(left)

    def close(self) -> None:
        """Hang up."""
        self.end.close()
