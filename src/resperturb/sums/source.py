"""The source of methods: parsed, with its additions in order."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any


@dataclass(frozen=True, eq=False)
class Source:
    """A function's syntax tree, with the line numbers of its file."""

    function: FunctionType
    tree: ast.FunctionDef
    lines: tuple[str, ...]
    first_line: int

    def text(self, node: ast.AST) -> str:
        """The line that ``node`` starts on, for messages."""
        return self.lines[node.lineno - self.first_line].strip()  # type: ignore[attr-defined]

    def addition_index(self, node: ast.AST) -> int | None:
        """The place of an addition among the function's additions."""
        return next((index for index, other in enumerate(additions(self.tree)) if other is node), None)


@cache
def source_of(function: FunctionType) -> Source | None:
    """Parse a function; None if its source is not to be had.

    >>> source_of(eval("lambda x: x")) is None
    True
    """
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    if not isinstance(tree, ast.FunctionDef):
        return None
    ast.increment_lineno(tree, first - 1)
    return Source(function, tree, tuple(lines), first)


def additions(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the additions under ``tree``, ``+``, ``+=`` and calls of ``add``, in an order that only the source sets.

    >>> [ast.unparse(node) for node in additions(ast.parse("y = a + b; y += torch.add(c, d)"))]
    ['y += torch.add(c, d)', 'a + b', 'torch.add(c, d)']
    """
    for node in ast.walk(tree):
        adds = isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Add)
        if adds or (isinstance(node, ast.Call) and _called(node) in ("add", "add_")):
            yield node


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def plain_function(function: Any) -> FunctionType | None:
    """The Python function inside decorators and bound methods."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    return function if isinstance(function, FunctionType) else None
