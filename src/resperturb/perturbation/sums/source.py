"""The source of methods: parsed, with its additions in order."""

import ast
import inspect
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from types import CodeType, FunctionType
from typing import Any


@dataclass(frozen=True, eq=False)
class Source:
    """A function's syntax tree, and the file that it stands in."""

    function: FunctionType
    tree: ast.FunctionDef
    file: str
    lines: tuple[str, ...]

    def addition(self, index: int) -> ast.AST | None:
        """The addition at ``index``."""
        return next((node for place, node in enumerate(additions(self.tree)) if place == index), None)

    def addition_index(self, node: ast.AST) -> int | None:
        """The place of an addition among the function's additions."""
        return next((index for index, other in enumerate(additions(self.tree)) if other is node), None)


@cache
def function_source(function: FunctionType) -> Source | None:
    """Find a function's source; None if it is not to be had.

    >>> function_source(eval("lambda x: x")) is None
    True
    """
    file = function.__code__.co_filename
    linecache.checkcache(file)
    lines = tuple(linecache.getlines(file, function.__globals__))
    tree = parsed(lines)
    node = None if tree is None else find_function(tree, function.__code__)
    return None if node is None else Source(function, node, file, lines)


@lru_cache(maxsize=64)
def parsed(lines: tuple[str, ...]) -> ast.Module | None:
    """Parse a file."""
    try:
        return ast.parse("".join(lines))
    except SyntaxError:
        return None


def find_function(tree: ast.AST, code: CodeType) -> ast.FunctionDef | None:
    """Find the function that was compiled to ``code``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None


def additions(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the additions under ``tree``, ``+``, ``+=`` and calls of ``add``, in an order that only the source sets.

    >>> [ast.unparse(node) for node in additions(ast.parse("y = a + b; y += torch.add(c, d)"))]
    ['y += torch.add(c, d)', 'a + b', 'torch.add(c, d)']
    """
    for node in ast.walk(tree):
        adds = isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Add)
        called = node.func if isinstance(node, ast.Call) else None
        if adds or (isinstance(called, ast.Attribute) and called.attr in ("add", "add_")):
            yield node


def plain_function(function: Any) -> FunctionType | None:
    """The Python function inside decorators and bound methods."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    function = getattr(function, "__func__", function)  # a wrapper may stand around a bound method
    return function if isinstance(function, FunctionType) else None
