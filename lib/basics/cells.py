"""The cells of a running notebook, as texts."""

import ast
import linecache
import re
import sys


def text_of(fn: object) -> str:
    """Return the text of the cell, or of the file, that defines a function."""
    return "".join(linecache.getlines(getattr(getattr(fn, "__code__", None), "co_filename", "")))


def is_older(name: str) -> bool:
    """Return whether the last cell that defines this function is no Python, so that what there is is an older one."""
    cells = getattr(sys.modules["__main__"], "In", ())
    last = next((cell for cell in reversed(cells) if re.search(rf"^(async )?def {name}\(", cell, re.MULTILINE)), "")
    try:
        compile(last, "", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError):
        return True
    return False
