"""Put a function in the place of additions in a method, without changing what the method is.

``a + b`` in the source becomes ``adder(self, key, a, b)``. Only the method's code object is exchanged: its identity,
signature, defaults, closure and decorators stay, and whoever holds the method already (a hook that kept the bound
method, a subclass that calls ``super().forward``) gets the new code too. No source of the user's is run for this.
"""

import ast
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from resperturb.perturbation.sums.source import Source, additions, find_function, plain_function, source_of

_FUTURES = 0x1FF0000  # the bits of a code object's flags that "from __future__ import" sets


class RewriteError(Exception):
    """The addition cannot be replaced; the message says why."""


@dataclass
class _Rewritten:
    original: CodeType
    indices: set[int] = field(default_factory=set)


_rewritten: WeakKeyDictionary[FunctionType, _Rewritten] = WeakKeyDictionary()
_lock = threading.Lock()


def rewrite(owner: type, method: str, index: int, text: str, adder: Callable[..., Any]) -> str:
    """Let an addition in ``owner.method`` call ``adder(self, key, left, right, ...)``, and return the key.

    The addition is the ``index``-th of the method, and reads ``text``.
    """
    function = plain_function(vars(owner).get(method))
    source = None if function is None else source_of(function)
    if function is None or source is None:
        raise RewriteError(f"the source of {owner.__qualname__}.{method} cannot be read")
    addition = source.addition(index)
    if addition is None or ast.unparse(addition) != text:
        raise RewriteError(f"{owner.__qualname__}.{method} has changed since this model was perturbed")
    with _lock:
        state = _rewritten.get(function) or _Rewritten(function.__code__)
        if index in state.indices:
            return _key(function, index)
        if not _same_code(_compiled(source, state.original, {}, ""), state.original):
            raise RewriteError(f"{owner.__qualname__}.{method} is not what its source file says (was it edited?)")
        indices = {*state.indices, index}
        name = f"_{adder.__module__.replace('.', '_')}_{adder.__name__}"
        code = _compiled(source, state.original, {i: _key(function, i) for i in indices}, name)
        function.__globals__[name] = adder
        function.__code__ = code
        _rewritten[function] = _Rewritten(state.original, indices)
        return _key(function, index)


def _key(function: FunctionType, index: int) -> str:
    return f"{function.__qualname__}:{index}"


class _Replacing(ast.NodeTransformer):
    """Replaces additions of a method, given by their index, by calls of ``adder``."""

    def __init__(self, method: ast.FunctionDef, keys: dict[int, str], adder: str) -> None:
        self.keys = {id(node): keys[i] for i, node in enumerate(additions(method)) if i in keys}
        self.adder = adder
        self.this = [*method.args.posonlyargs, *method.args.args][0].arg

    def visit(self, node: ast.AST) -> Any:
        key = self.keys.get(id(node))
        self.generic_visit(node)
        if key is None:
            return node
        match node:
            case ast.BinOp():
                return self.call(node, key, [node.left, node.right], [])
            case ast.AugAssign(target=ast.Name(id=name)):
                call = self.call(node, key, [ast.Name(name, ast.Load()), node.value], [_in_place()])
                return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], call), node)
            case ast.Call(func=ast.Attribute(value=base, attr="add" | "add_" as method)) if len(node.args) == 1:
                in_place = [_in_place()] if method == "add_" else []
                call = self.call(node, key, [base, node.args[0]], [*node.keywords, *in_place])
                if in_place and isinstance(base, ast.Name):  # the statement "a.add_(b)" changes a
                    return ast.copy_location(ast.NamedExpr(ast.Name(base.id, ast.Store()), call), node)
                return call
            case ast.Call(func=ast.Attribute(attr="add")) if len(node.args) == 2:
                return self.call(node, key, node.args, node.keywords)
        raise RewriteError(f"{ast.unparse(node)!r} cannot be replaced")

    def call(self, node: ast.AST, key: str, operands: list[ast.expr], keywords: list[ast.keyword]) -> ast.Call:
        this, function = ast.Name(self.this, ast.Load()), ast.Name(self.adder, ast.Load())
        call = ast.Call(function, [this, ast.Constant(key), *operands], keywords)
        return ast.copy_location(call, node)


def _in_place() -> ast.keyword:
    return ast.keyword("in_place", ast.Constant(True))


def _compiled(source: Source, original: CodeType, keys: dict[int, str], adder: str) -> CodeType:
    """Compile the whole file with the additions replaced, and take the method's code out of it."""
    tree = ast.parse("".join(source.lines))
    method = find_function(tree, original)
    assert method is not None
    _Replacing(method, keys, adder).visit(method)
    flags = original.co_flags & _FUTURES
    compiled = compile(ast.fix_missing_locations(tree), source.file, "exec", flags=flags, dont_inherit=True)
    return next(
        code
        for code in _codes(compiled)
        if code.co_firstlineno == original.co_firstlineno and code.co_qualname == original.co_qualname
    )


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _same_code(one: CodeType, other: CodeType) -> bool:
    def shape(code: CodeType) -> tuple[Any, ...]:
        return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars

    inner = [(shape(a), shape(b)) for a, b in zip(_codes(one), _codes(other), strict=False)]
    return shape(one) == shape(other) and all(a == b for a, b in inner)
