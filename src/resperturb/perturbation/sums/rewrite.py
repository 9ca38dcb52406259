"""Give one module noise at its additions: it becomes an instance of a subclass of its own class.

In the subclass ``a + b`` of the chosen methods reads ``self._junction_sum(key, a, b)``; all else is inherited. What
other instances use is not touched: neither the class of the module, nor its functions, nor the names of its file.
The subclass has the name of the class, is made once per class and choice of sums, and instances of it are copied and
pickled as what they are. No source of the user's is run for this: only the methods are compiled again.
"""

import ast
import copyreg
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from torch import nn

from resperturb.perturbation.sums.rules import Side
from resperturb.perturbation.sums.source import Source, additions, find_function, function_source, plain_function

JUNCTION_SUM = "_junction_sum"

_PLAIN_CLASS = "_class_without_noise"
_NOISY_ADDITIONS = "_noisy_additions"
_FUTURES = 0x1FF0000  # the bits of a code object's flags that "from __future__ import" sets


class RewriteError(Exception):
    """The addition cannot be replaced; the message says why."""


@dataclass(frozen=True)
class Addition:
    """An addition in a method: the ``index``-th of it, which reads ``text``; one side of it is the shortcut."""

    owner: type
    method: str
    index: int
    text: str
    shortcut: Side | None

    @property
    def key(self) -> str:
        """What the method says to tell its additions apart."""
        return f"{self.owner.__qualname__}.{self.method}:{self.index}"


def class_of(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module as it was before the module was perturbed.

    >>> class_of(nn.Linear(1, 1))
    <class 'torch.nn.modules.linear.Linear'>
    """
    kind: type[nn.Module] = getattr(type(module), _PLAIN_CLASS, type(module))
    return kind


def noisy_additions(module: nn.Module) -> frozenset[Addition]:
    """Return the additions that were replaced in a module."""
    additions: frozenset[Addition] = getattr(type(module), _NOISY_ADDITIONS, frozenset())
    return additions


def replace_additions(
    module: nn.Module, additions: Iterable[Addition], junction_sum: Callable[..., Any], *, try_only: bool = False
) -> None:
    """Let additions in methods of this instance, and of no other, call ``junction_sum(module, key, left, right)``.

    Raises:
        RewriteError: One cannot be replaced. The module is then as it was.
    """
    additions = frozenset(additions)
    kind = noisy_class(class_of(module), noisy_additions(module) | additions, junction_sum)
    kept: dict[str, MethodType] = {}
    for addition in additions:
        found = _kept_methods(module, addition, kind)
        if addition.method in vars(module) and not found:
            raise RewriteError(f"another {addition.method} was put on the instance")
        kept.update(found)
    if not try_only:
        module.__class__ = kind
        vars(module).update(kept)


def _kept_methods(module: nn.Module, addition: Addition, kind: type) -> dict[str, MethodType]:
    """Methods that a library keeps on the instance to call them later, as they must be then."""
    original = vars(addition.owner)[addition.method]
    current = {original, *(vars(c)[addition.method] for c in type(module).__mro__ if addition.method in vars(c))}
    replaced = next(vars(c)[addition.method] for c in kind.__mro__ if _replaces(c, addition))
    return {
        name: MethodType(replaced, module)
        for name, value in vars(module).items()
        if isinstance(value, MethodType) and value.__self__ is module and value.__func__ in current
    }


def _replaces(kind: type, addition: Addition) -> bool:
    return vars(kind).get("_replaces_methods_of") is addition.owner and addition.method in vars(kind)


_lock = threading.Lock()
_classes: dict[tuple[type, frozenset[Addition]], type] = {}


def noisy_class(kind: type, additions: frozenset[Addition], junction_sum: Callable[..., Any]) -> type:
    """Return the subclass of ``kind`` in which these additions call ``junction_sum``, the same one every time.

    A method that ``super()`` reaches is replaced where it is inherited from, so that ``super()`` still finds it.
    """
    with _lock:
        if (kind, additions) not in _classes:
            _classes[kind, additions] = _make_class(kind, additions, junction_sum)
        return _classes[kind, additions]


def _make_class(kind: type, additions: frozenset[Addition], junction_sum: Callable[..., Any]) -> type:
    bases: list[type] = []
    for owner in kind.__mro__:
        methods = {addition.method for addition in additions if addition.owner is owner}
        if methods:
            names: dict[str, Any] = {
                method: _replaced_method(
                    owner, method, [p for p in additions if (p.owner, p.method) == (owner, method)]
                )
                for method in methods
            }
            bases.append(_subclass(owner, (owner,), {**names, "_replaces_methods_of": owner}))
    if not issubclass(bases[0], kind):
        bases.insert(0, kind)
    names = {
        _PLAIN_CLASS: kind,
        _NOISY_ADDITIONS: additions,
        JUNCTION_SUM: junction_sum,
        "__reduce_ex__": _reduce_ex,
    }
    return _subclass(kind, tuple(bases), names)


def _subclass(like: type, bases: tuple[type, ...], names: dict[str, Any]) -> type:
    about = {"__module__": like.__module__, "__qualname__": like.__qualname__, "__doc__": like.__doc__}
    try:
        return type(like)(like.__name__, bases, {**about, **names})
    except Exception as error:  # a metaclass or __init_subclass__ may do anything
        raise RewriteError(f"{like.__qualname__} cannot be extended ({error})") from error


def _reduce_ex(self: Any, protocol: Any) -> tuple[Any, ...]:
    """Copy and pickle a perturbed module by its own class and the additions that add noise."""
    kind = next(c for c in type(self).__mro__ if _PLAIN_CLASS in vars(c))
    make, arguments, *state = super(kind, self).__reduce_ex__(max(int(protocol), 2))  # type: ignore[arg-type]
    if make is not copyreg.__newobj__ or arguments[0] is not kind:  # type: ignore[attr-defined]
        raise RewriteError(f"{kind.__qualname__} is pickled in a way of its own, which would lose the noise")
    plain, additions = vars(kind)[_PLAIN_CLASS], vars(kind)[_NOISY_ADDITIONS]
    return _new, (plain, additions, vars(kind)[JUNCTION_SUM], *arguments[1:]), *state


def _new(kind: type, additions: frozenset[Addition], junction_sum: Callable[..., Any], *arguments: Any) -> Any:
    noisy = noisy_class(kind, additions, junction_sum)
    return noisy.__new__(noisy, *arguments)


def _replaced_method(owner: type, method: str, additions: list[Addition]) -> Any:
    """Compile ``owner.method`` with these additions replaced."""
    function = plain_function(vars(owner).get(method))
    source = None if function is None else function_source(function)
    if function is None or source is None:
        raise RewriteError(f"the source of {owner.__qualname__}.{method} cannot be read")
    for addition in additions:
        node = source.addition(addition.index)
        if node is None or ast.unparse(node) != addition.text:
            raise RewriteError(f"{owner.__qualname__}.{method} has changed since this model was perturbed")
    if not _is_its_source(source):
        raise RewriteError(f"{owner.__qualname__}.{method} is not what its source file says (was it edited?)")
    code = _compiled(source, {addition.index: addition.key for addition in additions})
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return _wrapped_again(vars(owner)[method], function, _copied(function, code, cells))


def _copied(function: FunctionType, code: CodeType, cells: dict[str, CellType]) -> FunctionType:
    closure = tuple(cells[name] for name in code.co_freevars)
    copied = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__dict__.update(function.__dict__)
    copied.__annotations__, copied.__qualname__ = function.__annotations__, function.__qualname__
    copied.__module__, copied.__doc__ = function.__module__, function.__doc__
    return copied


def _wrapped_again(decorated: Any, function: FunctionType, replaced: FunctionType) -> Any:
    """Put decorators around ``replaced`` as they are around ``function``."""
    if decorated is function:
        return replaced
    inner = getattr(decorated, "__wrapped__", None)
    if isinstance(decorated, FunctionType) and inner is not None:
        again = _wrapped_again(inner, function, replaced)
        names = decorated.__code__.co_freevars
        cells = {
            name: CellType(again) if _content(cell) is inner else cell
            for name, cell in zip(names, decorated.__closure__ or (), strict=True)
        }
        if any(_content(cell) is again for cell in cells.values()):
            wrapper = _copied(decorated, decorated.__code__, cells)
            wrapper.__wrapped__ = again  # type: ignore[attr-defined]
            return wrapper
    raise RewriteError(f"{function.__qualname__} is decorated in a way that cannot be repeated")


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


class _Replacing(ast.NodeTransformer):
    """Replaces additions of a method, given by their index, by calls of ``self._junction_sum``."""

    def __init__(self, method: ast.FunctionDef, keys: dict[int, str]) -> None:
        self.keys = {id(node): keys[i] for i, node in enumerate(additions(method)) if i in keys}
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
        function = ast.Attribute(ast.Name(self.this, ast.Load()), JUNCTION_SUM, ast.Load())
        return ast.copy_location(ast.Call(function, [ast.Constant(key), *operands], keywords), node)


def _in_place() -> ast.keyword:
    return ast.keyword("in_place", ast.Constant(True))


@lru_cache(maxsize=256)
def _is_its_source(source: Source) -> bool:
    """Whether a function is what its file says."""
    return _same_code(_compiled(source, {}), source.function.__code__)


def _compiled(source: Source, keys: dict[int, str]) -> CodeType:
    """Compile the whole file with the additions replaced, and take the method's code out of it."""
    original = source.function.__code__
    tree = ast.parse("".join(source.lines))
    method = find_function(tree, original)
    assert method is not None
    _Replacing(method, keys).visit(method)
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
