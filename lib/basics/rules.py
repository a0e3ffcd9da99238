"""The rules that a program can break, and the sentence that each is told with.

A rule is known by its name: whoever asks which mistake an error is about compares names, never texts. What stands in
braces in a sentence are facts that the error carries.
"""

from collections.abc import Mapping

ARGUMENT = "argument"
"""The rule of errors about arguments of functions, options and files. Their problem is given as a free text."""

RULES: Mapping[str, str] = {
    # of a rank's dictionaries and coroutines
    "not_stored": "{key} is not stored",
    "forgot_await": "did you forget `await`? {what}",
}
