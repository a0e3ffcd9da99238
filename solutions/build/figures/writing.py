"""A number as text, a sum, and a text with its figures (the package's docstring says how a text asks for them)."""

import ast
import re
from fractions import Fraction
from typing import Any

from lib.basics.units import exact

PLACE = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)
DECIMALS = 3
WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
WORDS += ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"]
PARTS = {2: "half", 3: "third", 4: "quarter", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth"}
PARTS |= {9: "ninth", 10: "tenth", 15: "fifteenth", 16: "sixteenth", 32: "32nd", 64: "64th"}


class FigureError(ValueError):
    """A figure that cannot be computed, or that no name stands behind. The message quotes it."""


def filled(text: str, names: dict[str, Any]) -> str:
    """Return a text with its figures. Raise FigureError, with the placeholder, where one is no figure."""

    def figure(place: re.Match[str]) -> str:
        written = " ".join(place[1].split())
        try:
            return shown(written, names)
        except Exception as error:  # whatever an expression may raise
            raise FigureError(f"{{{{{written}}}}}: {type(error).__name__}: {error}") from None

    return PLACE.sub(figure, text)


def shown(written: str, names: dict[str, Any]) -> str:
    """Return what stands in the place of an expression, with or without a way to write it."""
    expression, way = _parts(written)
    tree = ast.parse(expression.strip(), mode="eval")
    if not any(isinstance(node, ast.Name) for node in ast.walk(tree)):
        raise FigureError("a figure needs a name: say what it is, in the cell of figures")
    value = eval(compile(tree, written, "eval"), names)
    if way.startswith("="):
        return f"{_sum(tree.body, names)} = {show(value, way[1:])}"
    return show(value, way)


def _parts(written: str) -> tuple[str, str]:
    expression, colon, way = written.rpartition(":")
    if colon:
        try:
            ast.parse(expression.strip(), mode="eval")
        except SyntaxError:
            return written, ""
        return expression, way.strip()
    return written, ""


def show(value: Any, way: str = "") -> str:
    """Write a figure.

    >>> show(2097152), show(20.5), show(45.0), show(Fraction(3, 11)), show(Fraction(3, 11), "percent")
    ('2,097,152', '20.5', '45', '3/11', '27 percent')
    >>> show(Fraction(2, 3), "word"), show(0.5, "word"), show(7, "word"), show(1.04, ".1f")
    ('two thirds', 'half', 'seven', '1.0')
    """
    if isinstance(value, str):
        return value
    if way == "percent":
        return f"{float(value):.0%}".replace("%", " percent")
    if way == "%":
        return f"{float(value):.0%}"
    if way == "word":
        return _word(exact(value))
    if way:
        return format(float(value), way)
    if isinstance(value, Fraction):
        return f"{value.numerator:,}" if value.denominator == 1 else str(value)
    if abs(value - round(value, DECIMALS)) > 1e-9 * max(1, abs(value)):
        raise FigureError(f"{value} has more than {DECIMALS} decimals: say how it is to be rounded")
    value = round(float(value), DECIMALS)
    return f"{int(value):,}" if value == int(value) else f"{value:,}"


def _word(value: Fraction) -> str:
    if value.denominator == 1:
        return WORDS[value.numerator]
    part, count = PARTS[value.denominator], value.numerator
    if part == "half":
        return part
    return f"a {part}" if count == 1 else f"{WORDS[count]} {part}s"


SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "x", ast.Div: "/"}
RANK = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2, ast.Div: 2}


def _sum(tree: ast.expr, names: dict[str, Any]) -> str:
    """Return an expression with numbers for its names."""
    if not isinstance(tree, ast.BinOp) or type(tree.op) not in SIGNS:
        return show(eval(compile(ast.Expression(tree), "a sum", "eval"), names))
    rank = RANK[type(tree.op)]

    def side(one: ast.expr, least: int) -> str:
        said = _sum(one, names)
        inner = isinstance(one, ast.BinOp) and type(one.op) in RANK and RANK[type(one.op)] < least
        return f"({said})" if inner else said

    after = rank + (type(tree.op) in (ast.Sub, ast.Div))
    return f"{side(tree.left, rank)} {SIGNS[type(tree.op)]} {side(tree.right, after)}"
