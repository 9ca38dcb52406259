"""Read the methods of modules, following every value, and judge the additions on the way."""

import ast
import builtins
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

from resperturb.perturbation.sums.rewrite import class_of
from resperturb.perturbation.sums.rules import Judgement, Side, from_caller, judge
from resperturb.perturbation.sums.source import Source, function_source, plain_function
from resperturb.perturbation.sums.values import (
    BRANCH,
    NOTHING,
    PLAIN,
    Path,
    Step,
    Value,
    activated,
    either,
    lightly_changed,
    mixed,
    multiplied,
    product,
    transformed,
    unchanged,
    weighted,
)

DEEPEST = 16
DEEPEST_FUNCTION = 6
DIFFERENCE = "it is a difference"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STEPS: dict[str, Step] = {
    name: step
    for step, names in (
        (weighted, "linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"),
        (multiplied, "matmul bmm mm einsum baddbmm addmm tensordot scaled_dot_product_attention"),
        (
            activated,
            "relu relu_ relu6 gelu silu sigmoid tanh softmax log_softmax leaky_relu elu selu celu mish prelu",
        ),
        (activated, "hardswish hardsigmoid hardtanh softplus softsign softshrink hardshrink threshold rrelu glu"),
        (activated, "logsigmoid exp log sin cos erf abs sqrt square pow clamp clamp_ clamp_min clip maximum"),
    )
    for name in names.split()
}
# What says something about a tensor, but not its values; and what makes new ones.
_NO_DATA = _words(
    "shape size dim ndim dtype device numel stride layout is_cuda is_contiguous requires_grad get_device names "
    "len isinstance range int float bool str print type hasattr callable id "
    "new_zeros new_ones new_empty new_full zeros ones empty full arange linspace eye "
    "zeros_like ones_like empty_like full_like rand randn randint randperm rand_like randn_like embedding"
)
_LIGHT = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.modules.batchnorm._NormBase,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
    nn.Upsample,
)
_ITERATORS = _words("enumerate zip reversed list tuple iter")


@dataclass(frozen=True)
class ResidualSum:
    """A sum that is residual or looks so, in a method of ``module`` that ``owner`` defines."""

    module: nn.Module
    owner: type
    method: str
    index: int | None
    line: int
    text: str
    shortcut: Side | None
    problem: str
    branch: tuple[str, ...]
    live: bool
    reason: str = ""

    @property
    def key(self) -> tuple[int, type, str, int, str]:
        """What tells it from others."""
        return id(self.module), self.owner, self.method, self.line, self.text


@dataclass(frozen=True)
class _Scope:
    """Whose method is read: what ``self`` is, and the class that defines the method."""

    source: Source
    module: nn.Module | None
    owner: type | None


@dataclass(frozen=True, eq=False)
class _Closure:
    """A function that a method defines, with the names around it."""

    scope: _Scope
    node: ast.FunctionDef | ast.Lambda
    names: dict[str, Value]


class Reader:
    """Reads methods, and collects what it finds about each sum, once for every way that it is reached."""

    def __init__(self) -> None:
        self.tensors = itertools.count()
        self.found: dict[tuple[int, type, str, int, str], list[ResidualSum]] = {}
        self.depth = 0
        self.live = True
        self.alone = False  # reading a module by itself, with arguments that nothing is known of
        self.module: nn.Module | None = None  # whose method is being read
        self.followed: set[type] = set()  # the classes of modules that were read through a call of them
        self.from_caller: list[ResidualSum | None] = []
        self._effects: dict[Any, Path | None] = {}

    def read(self, module: nn.Module) -> None:
        """Read ``module.forward`` by itself, with a tensor for every argument."""
        function = plain_function(class_of(module).forward)
        if function is not None and function_source(function) is not None:
            names = list(inspect.signature(function).parameters)[1:]
            arguments = {name: Value({next(self.tensors): Path()}, name=name) for name in names}
            self.alone = True
            self.call_method(module, function, [], arguments)
            self.alone = False

    def failed(self, module: nn.Module, error: Exception) -> None:
        """Note that a module could not be read to its end."""
        problem = f"reading it failed with {type(error).__name__}: {error}"
        found = ResidualSum(module, type(None), "forward", None, 0, "forward", None, problem, (), True)
        self.found[(id(module), type(None), "forward", 0, "forward")] = [found]
        self.depth, self.live, self.alone, self.module = 0, True, False, None

    def call(self, target: Any, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> Value | None:
        """Follow a call; None if nothing is known of what it does."""
        if isinstance(target, nn.Module):
            return self.call_module(target, arguments, keywords)
        if isinstance(target, _Closure):
            return self.run(target.scope, target.node, target.names, arguments, keywords)
        if isinstance(target, MethodType) and isinstance(target.__self__, nn.Module):
            if plain_function(target) is plain_function(class_of(target.__self__).forward):
                return self.call_module(target.__self__, arguments, keywords)
            return self.call_method(target.__self__, target, arguments, keywords)
        name = getattr(target, "__name__", "")
        if name in _NO_DATA and (is_torch(target) or getattr(builtins, name, None) is target):
            return NOTHING
        if is_torch(target) or isinstance(target, type | BuiltinFunctionType) or _is_join(target):
            return mixed([*arguments, *keywords.values()], _STEPS.get(name, unchanged))
        function = plain_function(target)
        source = None if function is None else function_source(function)
        if source is None:
            return None
        return self.run(_Scope(source, None, None), source.tree, {}, arguments, keywords)

    def call_method(
        self, module: nn.Module, method: Any, arguments: Sequence[Value], keywords: Mapping[str, Value]
    ) -> Value | None:
        """Follow a call of a method of ``module``; None if its source cannot be read."""
        function = plain_function(method)
        source = None if function is None else function_source(function)
        if source is None:
            return None
        owner, _ = _definition(class_of(module), source)
        this = Value(objects=(module,))
        return self.run(_Scope(source, module, owner), source.tree, {}, [this, *arguments], keywords)

    def call_module(self, module: nn.Module, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> Value:
        """Follow a call of a module, tensor by tensor: each is taken as far as its way through the arguments goes."""
        inputs: dict[int | str, Value] = {}
        inputs.update(enumerate(arguments))
        inputs.update(keywords)
        paths: dict[int, Path] = {}
        for tensor in dict.fromkeys(tensor for value in inputs.values() for tensor in value.paths):
            ways = {where: value.paths[tensor] for where, value in inputs.items() if tensor in value.paths}
            levels = tuple((where, way.least, way.most) for where, way in ways.items())
            effect = self.effect(module, levels, tuple(inputs))
            if effect is not None:
                names = frozenset(name for way in ways.values() for name in way.names)
                paths[tensor] = replace(effect, names=names)
        return Value(paths)

    def effect(
        self, module: nn.Module, levels: tuple[tuple[int | str, int, int], ...], places: tuple[int | str, ...]
    ) -> Path | None:
        """How far a tensor comes through ``module`` that goes in at these levels; None if it does not get through."""
        key = (id(module), levels, places)
        if key not in self._effects:
            self._effects[key] = Path(*(transformed(max(most for _, _, most in levels)),) * 2)  # if it calls itself
            tensor = next(self.tensors)
            given = {where: Path(least, most) for where, least, most in levels}
            inputs = {
                where: Value({next(self.tensors): Path(), **({tensor: given[where]} if where in given else {})})
                for where in places
            }
            arguments = [value for where, value in inputs.items() if isinstance(where, int)]
            keywords = {where: value for where, value in inputs.items() if isinstance(where, str)}
            alone, self.alone = self.alone, False
            self.followed.add(class_of(module))
            effect = self._pass(module, arguments, keywords).paths.get(tensor)
            self.alone = alone
            # From outside, what a module multiplies within itself is a branch like others.
            self._effects[key] = effect and Path(min(effect.least, BRANCH), min(effect.most, BRANCH))
        return self._effects[key]

    def _pass(self, module: nn.Module, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> Value:
        inputs = [*arguments, *keywords.values()]
        if isinstance(module, nn.Linear | nn.Bilinear | nn.modules.conv._ConvNd):
            return mixed(inputs, weighted)
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            return NOTHING
        if class_of(module).forward is nn.Sequential.forward:
            value = mixed(inputs)
            for child in module.children():
                value = self.call_module(child, [value], {})
            return value
        if isinstance(module, _LIGHT):
            return mixed(inputs, lightly_changed)
        if not is_torch(class_of(module).forward):
            followed = self.call_method(module, class_of(module).forward, arguments, keywords)
            if followed is not None:
                return followed
        elif class_of(module).__module__ == "torch.nn.modules.activation" and not isinstance(
            module, nn.MultiheadAttention
        ):
            return mixed(inputs, activated)
        has_weights = next(module.parameters(), None) is not None
        return mixed(inputs, transformed if has_weights else unchanged)

    def run(
        self,
        scope: _Scope,
        node: ast.FunctionDef | ast.Lambda,
        around: dict[str, Value],
        arguments: Sequence[Value],
        keywords: Mapping[str, Value],
    ) -> Value:
        """Read the body of a function with these arguments."""
        if self.depth >= (DEEPEST if scope.module is not None else DEEPEST_FUNCTION):
            return mixed([*arguments, *keywords.values()], transformed)
        self.depth += 1
        caller, self.module = self.module, self.module if scope.module is None else scope.module
        try:
            frame = _Frame(self, scope, {**around, **_bound(node.args, arguments, keywords)})
            if isinstance(node, ast.Lambda):
                return frame.value(node.body)
            frame.block(node.body)
            return either(frame.returned)
        finally:
            self.depth -= 1
            self.module = caller

    def note(
        self, left: Value, right: Value, node: ast.expr | ast.stmt, frame: "_Frame", quirk: str, unsure: bool
    ) -> None:
        """Judge an addition and keep what comes out."""
        judgement = judge(left, right)
        if unsure:
            judgement = Judgement(None, "", "it is not known which entries of a dict these are", frozenset())
        if judgement is None and self.alone and not left.paths.keys() & right.paths.keys():
            if from_caller(left, right) and frame.scope.module is not None:
                problem = "its sides come from a caller that could not be followed"
                self.from_caller.append(self.make(node, frame, Judgement(None, "", problem, frozenset()), quirk))
            return
        if judgement is None or (quirk == DIFFERENCE and not judgement.is_nonlinear):
            return
        found = self.make(node, frame, judgement, quirk)
        if found is not None:
            self.found.setdefault(found.key, []).append(found)

    def make(
        self, node: ast.expr | ast.stmt, frame: "_Frame", judgement: Judgement, quirk: str
    ) -> ResidualSum | None:
        """Say where a sum is; None if that is in no module."""
        scope = frame.scope
        module, owner, problem = scope.module, scope.owner, judgement.problem or quirk
        if module is None or owner is None:
            # What a function of tensors alone adds up counts only if it is clearly residual: most are attentions.
            module, owner = frame.nearest_module(), type(None)
            if module is None and not problem and judgement.is_nonlinear:
                module = self.module
            problem = problem or f"it is in {scope.source.function.__qualname__}(), not in a method of a module"
        if module is None:
            return None
        return ResidualSum(
            module,
            owner,
            _definition(class_of(module), scope.source)[1],
            None if quirk or owner is type(None) else scope.source.addition_index(node),
            node.lineno,
            ast.unparse(node),
            judgement.shortcut,
            problem,
            tuple(sorted(name for whose, name in judgement.branch if whose == id(module))),
            self.live,
            judgement.reason,
        )


class _Frame:
    """One function being read: its names, and what it returned."""

    def __init__(self, reader: Reader, scope: _Scope, names: dict[str, Value]) -> None:
        self.reader = reader
        self.scope = scope
        self.names = names
        self.returned: list[Value] = []

    def nearest_module(self) -> nn.Module | None:
        things = (thing for value in self.names.values() for thing in value.objects)
        return next((thing for thing in things if isinstance(thing, nn.Module)), None)

    # Statements

    def block(self, statements: Sequence[ast.stmt]) -> bool:
        """Read statements in order; true if their end is reached."""
        return all(self.statement(statement) for statement in statements)

    def statement(self, node: ast.stmt) -> bool:
        """Read a statement; false if what follows it is not reached."""
        match node:
            case ast.Return():
                if node.value is not None:
                    self.returned.append(self.value(node.value))
                return False
            case ast.Raise() | ast.Continue() | ast.Break():
                return False
            case ast.Assign():
                value = self.value(node.value)
                for target in node.targets:
                    self.assign(target, value)
            case ast.AnnAssign() if node.value is not None:
                self.assign(node.target, self.value(node.value))
            case ast.AugAssign():
                self.assign(node.target, self.operated(node, node.op, node.target, node.value))
            case ast.If():
                return self.branch(node)
            case ast.For() | ast.While():
                self.loop(node)
            case ast.With():
                for item in node.items:
                    value = self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, value)
                return self.block(node.body)
            case ast.Try():
                reached = self.block([*node.body, *node.orelse])
                for handler in node.handlers:
                    self.apart(handler.body)
                return self.block(node.finalbody) and reached
            case ast.FunctionDef():
                self.names[node.name] = Value(objects=(_Closure(self.scope, node, self.names),))
            case ast.Expr():
                self.value(node.value)
        return True

    def branch(self, node: ast.If) -> bool:
        """Read both ways of an ``if``. One that this instance never takes is read as well, but does not count."""
        self.value(node.test)
        decided = self.decided(node.test)
        ends = []
        for way, statements in ((True, node.body), (False, node.orelse)):
            taken = decided in (None, way)
            live, self.reader.live = self.reader.live, self.reader.live and taken
            inner, reached = self.apart(statements)
            self.reader.live = live
            if taken:
                self.returned.extend(inner.returned)
                if reached:
                    ends.append(inner.names)
        if ends:
            self.rename(ends)
        return bool(ends)

    def loop(self, node: ast.For | ast.While) -> None:
        """Read a loop twice, so that what one turn leaves to the next is seen."""
        item = self.iterated(self.value(node.iter)) if isinstance(node, ast.For) else NOTHING
        for _ in range(2):
            inner = _Frame(self.reader, self.scope, dict(self.names))
            if isinstance(node, ast.For):
                inner.assign(node.target, item)
            inner.block(node.body)
            self.returned.extend(inner.returned)
            self.rename([self.names, inner.names])
        self.block(node.orelse)

    def apart(self, statements: Sequence[ast.stmt]) -> tuple["_Frame", bool]:
        inner = _Frame(self.reader, self.scope, dict(self.names))
        return inner, inner.block(statements)

    def rename(self, ends: Sequence[dict[str, Value]]) -> None:
        merged = {name: either(end[name] for end in ends if name in end) for end in ends for name in end}
        self.names.clear()
        self.names.update(merged)

    def assign(self, target: ast.expr, value: Value) -> None:
        """Give a value a name. It keeps the name it had as an argument, which may say that it is the shortcut."""
        if isinstance(target, ast.Name):
            self.names[target.id] = value if value.name else replace(value, name=target.id)
        elif isinstance(target, ast.Subscript):
            before = self.value(target.value)
            self.merge(target.value, value)
            if isinstance(target.slice, ast.Constant) and before.is_dict:
                where = ast.unparse(target.value)
                entries = {**(before.entries or {}), target.slice.value: value}
                self.names[where] = replace(self.names[where], entries=entries)
        elif isinstance(target, ast.Attribute):
            self.names[ast.unparse(target)] = value
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value.parts if value.parts is not None and len(value.parts) == len(target.elts) else None
            for position, element in enumerate(target.elts):
                if isinstance(element, ast.Starred):
                    self.assign(element.value, Value(value.paths, is_sequence=True))
                else:
                    self.assign(element, parts[position] if parts is not None else _element(value, position))

    def merge(self, target: ast.expr, value: Value) -> None:
        """Put a value into what a list, a dict or a tensor holds."""
        where = ast.unparse(target)
        before = self.value(target)
        merged = mixed([before, value])
        item = either([inner for inner in (before.item, value) if inner is not None])
        self.names[where] = replace(
            merged, item=item, is_sequence=before.is_sequence, name=before.name, is_dict=before.is_dict
        )

    # Expressions

    def value(self, node: ast.expr) -> Value:
        """Read an expression."""
        match node:
            case ast.Name():
                return self.names[node.id] if node.id in self.names else self.outer(node.id)
            case ast.Constant():
                return Value(objects=(node.value,)) if node.value is None else NOTHING
            case ast.Attribute():
                stored = self.names.get(ast.unparse(node)) if isinstance(node.value, ast.Name) else None
                return stored if stored is not None else self.attribute(self.value(node.value), node.attr)
            case ast.Call():
                return self.called(node)
            case ast.BinOp():
                return self.operated(node, node.op, node.left, node.right)
            case ast.IfExp():
                decided = self.decided(node.test)
                ways = [
                    self.value(n) for way, n in ((True, node.body), (False, node.orelse)) if decided in (None, way)
                ]
                return either(ways)
            case ast.BoolOp():
                return either([self.value(value) for value in node.values])
            case ast.Compare() | ast.JoinedStr():
                return NOTHING
            case ast.Subscript():
                return _element(
                    self.value(node.value), node.slice.value if isinstance(node.slice, ast.Constant) else None
                )
            case ast.Dict():
                inside = [(key, self.value(value)) for key, value in zip(node.keys, node.values, strict=True)]
                named = {key.value: value for key, value in inside if isinstance(key, ast.Constant)}
                return self.dictionary(named, [value for _, value in inside])
            case ast.Tuple() | ast.List():
                parts = tuple(self.value(element) for element in node.elts)
                return replace(mixed(parts), parts=parts, item=either(parts), is_sequence=True)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                inner = _Frame(self.reader, self.scope, dict(self.names))
                for generator in node.generators:
                    inner.assign(generator.target, inner.iterated(inner.value(generator.iter)))
                item = inner.value(node.elt)
                return Value(item.paths, item=item, is_sequence=True)
            case ast.Lambda():
                return Value(objects=(_Closure(self.scope, node, self.names),))
            case ast.NamedExpr():
                self.assign(node.target, value := self.value(node.value))
                return value
        return mixed([self.value(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)])

    def dictionary(self, entries: Mapping[Any, Value], values: Sequence[Value]) -> Value:
        """A dict with these entries under keys that are written out, and these values in all."""
        return replace(mixed(values), item=either(values), entries=dict(entries), is_dict=True)

    def attribute(self, value: Value, name: str) -> Value:
        private = name.startswith("__") and not name.endswith("__") and self.scope.owner is not None
        return _attribute(value, f"_{self.scope.owner.__name__.lstrip('_')}{name}" if private else name)  # type: ignore[union-attr]

    def outer(self, name: str) -> Value:
        """A name from outside of the method: of a function around it, of its file, or built in."""
        function = self.scope.source.function
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        around = {free: cell.cell_contents for free, cell in cells if free == name and _is_filled(cell)}
        for names in (around, function.__globals__, vars(builtins)):
            if name in names:
                return Value(objects=(names[name],))
        return NOTHING

    def iterated(self, value: Value) -> Value:
        return value.item if value.item is not None else _element(value, None)

    def operated(self, node: ast.BinOp | ast.AugAssign, op: ast.operator, first: ast.expr, second: ast.expr) -> Value:
        left, right = self.value(first), self.value(second)
        match op:
            case ast.Add():
                named = isinstance(node, ast.BinOp) or isinstance(node.target, ast.Name)
                return self.added(left, right, node, "" if named else "its target is not a local name")
            case ast.Sub():
                return self.added(left, right, node, DIFFERENCE)
            case ast.MatMult():
                return mixed([left, right], multiplied)
        return product(left, right)

    def added(self, left: Value, right: Value, node: ast.expr | ast.stmt, quirk: str = "") -> Value:
        total = mixed([left, right])
        if left.is_sequence or right.is_sequence:  # tuples and lists are joined by +, too
            return replace(total, is_sequence=True)
        unsure = (left.is_unsure or right.is_unsure) and bool(left.paths.keys() & right.paths.keys())
        self.reader.note(left, right, node, self, quirk, unsure)
        return Value({**total.paths, next(self.reader.tensors): Path()}) if total.paths else NOTHING

    def called(self, node: ast.Call) -> Value:
        arguments: list[Value] = []
        for argument in node.args:
            value = self.value(argument.value if isinstance(argument, ast.Starred) else argument)
            arguments.extend(
                value.parts if isinstance(argument, ast.Starred) and value.parts is not None else [value]
            )
        keywords = {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}
        spread = [self.value(k.value) for k in node.keywords if k.arg is None]
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value)
            special = self.method_called(node, node.func.attr, base, arguments, keywords)
            if special is not None:
                return special
            function = self.of_super(node.func) or self.attribute(base, node.func.attr)
        else:
            function = self.value(node.func)
            builtin = node.func.id if isinstance(node.func, ast.Name) and node.func.id not in self.names else ""
            if builtin in _ITERATORS:
                return self.iterator(builtin, arguments)
            if builtin == "getattr" and arguments:
                return self.got(node, arguments[0])
            if builtin == "dict" and not arguments and not spread:
                return self.dictionary(keywords, list(keywords.values()))
            if builtin == "sum" and arguments and arguments[0].parts:
                return self.total(arguments[0].parts, node, "it is a call of sum()")
        results = []
        for target in _representatives(function.objects):
            result = self.reader.call(target, arguments, keywords)
            results.append(
                self.unknown(function, arguments, [*keywords.values(), *spread]) if result is None else result
            )
        if not results:
            results = [self.unknown(function, arguments, [*keywords.values(), *spread])]
        return self.made(either(results), function)

    def method_called(
        self, node: ast.Call, method: str, base: Value, arguments: Sequence[Value], keywords: Mapping[str, Value]
    ) -> Value | None:
        """Read sums that are spelled as calls, methods of tensors, and what fills lists."""
        if method in ("append", "extend", "insert", "update", "setdefault") and not base.objects:
            assert isinstance(node.func, ast.Attribute)
            for argument in arguments:
                self.merge(node.func.value, argument)
            return NOTHING
        if base.entries is not None and method in ("get", "pop", "setdefault") and node.args:
            key = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
            return _element(base, key)
        of_torch = any(isinstance(thing, ModuleType) and thing.__name__ == "torch" for thing in base.objects)
        operands = list(arguments) if of_torch else [base, *arguments]
        if (of_torch or (base.paths and not base.objects)) and (result := self.fused(node, method, operands)):
            return result
        if method.startswith("add") and len(arguments) == 2:
            if any(isinstance(thing, ModuleType) and thing.__name__ == "torch" for thing in base.objects):
                quirk = "" if method == "add" and "out" not in keywords else f"it is a call of torch.{method}"
                return self.added(arguments[0], arguments[1], node, quirk)
            if any("FloatFunctional" in type(thing).__name__ for thing in base.objects):
                return self.added(arguments[0], arguments[1], node, "it is a quantised sum")
        if not base.objects and base.paths:
            result = self.tensor_method(node, method, base, arguments, keywords)
            if (
                method.endswith("_")
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
            ):
                self.names[node.func.value.id] = result  # it changed in place
            return result
        return None

    def fused(self, node: ast.Call, method: str, operands: Sequence[Value]) -> Value | None:
        """Read what adds or stacks without a plus; None if this is not such a call."""
        quirk = f"it is a call of {method}()"
        if method in ("stack", "cat", "concat") and operands:
            parts = operands[0].parts
            return replace(mixed(operands), stacked=parts, name=method) if parts and len(parts) > 1 else None
        if method in ("sum", "mean") and operands and operands[0].stacked and operands[0].name != "cat":
            return self.total(operands[0].stacked, node, f"it is a {method} of stacked tensors")
        if method in ("view", "reshape", "unflatten") and operands and operands[0].stacked:
            return replace(mixed(operands), stacked=operands[0].stacked, name="stack")
        if method.rstrip("_") in ("addcmul", "addcdiv") and len(operands) >= 3:
            return self.added(operands[0], product(operands[1], operands[2]), node, quirk)
        if method.rstrip("_") == "lerp" and len(operands) >= 2:
            return self.added(operands[0], operands[1], node, quirk)
        if method.rstrip("_") in ("index_add", "scatter_add") and len(operands) >= 4:
            return self.added(operands[0], operands[3], node, quirk)
        return None

    def total(self, parts: Sequence[Value], node: ast.Call, quirk: str) -> Value:
        """Read the sum of several values, one after the other."""
        total = parts[0]
        for part in parts[1:]:
            total = self.added(total, part, node, quirk)
        return total

    def tensor_method(
        self, node: ast.Call, method: str, base: Value, arguments: Sequence[Value], keywords: Mapping[str, Value]
    ) -> Value:
        if method in ("add", "add_") and len(arguments) == 1:
            return self.added(base, arguments[0], node)
        if method in ("mul", "mul_", "multiply") and len(arguments) == 1:
            return product(base, arguments[0])
        if method in _NO_DATA:
            return NOTHING
        return mixed([base, *arguments, *keywords.values()], _STEPS.get(method, unchanged))

    def of_super(self, function: ast.Attribute) -> Value | None:
        """What ``super().method`` is."""
        called = function.value
        module, owner = self.scope.module, self.scope.owner
        if not isinstance(called, ast.Call) or not isinstance(called.func, ast.Name) or called.func.id != "super":
            return None
        if module is None or owner is None:
            return None
        later = class_of(module).__mro__[class_of(module).__mro__.index(owner) + 1 :]
        method = next((vars(c)[function.attr] for c in later if function.attr in vars(c)), None)
        if method is nn.Sequential.forward:
            return Value(objects=(nn.Sequential(*module.children()),), name="super")
        return Value(objects=(MethodType(method, module),)) if isinstance(method, FunctionType) else None

    def iterator(self, name: str, arguments: Sequence[Value]) -> Value:
        items = [self.iterated(argument) for argument in arguments]
        paths = mixed(arguments).paths
        if name == "enumerate" and items:
            return Value(paths, item=Value(items[0].paths, parts=(NOTHING, items[0])), is_sequence=True)
        if name == "zip":
            return Value(paths, item=Value(mixed(items).paths, parts=tuple(items)), is_sequence=True)
        return replace(either(arguments), item=either(items), is_sequence=True)

    def got(self, node: ast.Call, value: Value) -> Value:
        """What ``getattr`` returns: one attribute if its name is written out, or any submodule."""
        key = node.args[1] if len(node.args) > 1 else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return _attribute(value, key.value)
        modules = [child for thing in value.objects if isinstance(thing, nn.Module) for child in thing.children()]
        return Value(value.paths, tuple(modules))

    def unknown(self, function: Value, arguments: Sequence[Value], others: Sequence[Value]) -> Value:
        """A call that cannot be looked into, perhaps of a module among its arguments, as checkpoints do."""
        for position, argument in enumerate(arguments):
            for thing in argument.objects:
                if isinstance(thing, nn.Module | _Closure | MethodType):
                    result = self.reader.call(thing, arguments[position + 1 :], {})
                    if result is not None:
                        return result
        return mixed([function, *arguments, *others], transformed)

    def made(self, value: Value, function: Value) -> Value:
        """Let what a call made be a tensor that others derive from, and remember the submodule that made it."""
        if not value.paths or (value.is_sequence and value.parts is not None):
            parts = value.parts and tuple(self.made(part, function) for part in value.parts)
            return replace(value, parts=parts)
        paths = dict(value.paths)
        by_module = any(isinstance(thing, nn.Module) for thing in function.objects)
        if by_module and function.name and self.scope.module is not None:
            mark = (id(self.scope.module), function.name)
            paths = {tensor: replace(path, names=path.names | {mark}) for tensor, path in paths.items()}
        if all(path.most > PLAIN for path in paths.values()):
            paths[next(self.reader.tensors)] = Path()
        return replace(value, paths=paths, name="")

    def decided(self, test: ast.expr) -> bool | None:
        """How a test comes out in this instance, if its attributes decide that."""
        match test:
            case ast.UnaryOp(op=ast.Not()):
                inner = self.decided(test.operand)
                return None if inner is None else not inner
            case ast.BoolOp():
                parts = [self.decided(value) for value in test.values]
                enough = isinstance(test.op, ast.Or)
                return enough if enough in parts else None if None in parts else not enough
            case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
                value = self.value(test.left)
                if value.paths or len({thing is None for thing in value.objects}) != 1:
                    return None
                return (value.objects[0] is None) is isinstance(test.ops[0], ast.Is)
            case ast.Attribute() if test.attr != "training":
                value = self.value(test)
                if len(value.objects) == 1 and isinstance(value.objects[0], bool) and not value.paths:
                    return value.objects[0]
        return None


def _definition(kind: type, source: Source) -> tuple[type | None, str]:
    """The class that has a method, and what it calls it: other than ``def`` did, if the class was changed."""
    name = source.tree.name
    for owner in kind.__mro__:
        if plain_function(vars(owner).get(name)) is source.function:
            return owner, name
    for owner in kind.__mro__:
        for other, value in vars(owner).items():
            if callable(value) and plain_function(value) is source.function:
                return owner, other
    return None, name


def _bound(signature: ast.arguments, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> dict[str, Value]:
    """Give arguments the names of a signature."""
    positional = [argument.arg for argument in [*signature.posonlyargs, *signature.args]]
    named = {*positional, *(argument.arg for argument in signature.kwonlyargs)}
    bound = {**dict.fromkeys(named, NOTHING), **dict(zip(positional, arguments, strict=False))}
    bound.update({name: value for name, value in keywords.items() if name in named})
    if signature.vararg is not None:
        rest = tuple(arguments[len(positional) :])
        given = keywords.get(signature.vararg.arg, NOTHING)
        paths = mixed([*rest, given]).paths
        bound[signature.vararg.arg] = Value(paths, parts=rest or None, item=Value(paths), is_sequence=True)
    if signature.kwarg is not None:
        bound[signature.kwarg.arg] = mixed([value for name, value in keywords.items() if name not in named])
    return bound


def _attribute(value: Value, name: str) -> Value:
    """The attribute of a value, without running any code of it."""
    if value.paths and name in _NO_DATA:
        return NOTHING
    objects = tuple(found for thing in value.objects for found in _attributes(thing, name))
    return Value(value.paths, objects, name=name if objects else value.name)


def _attributes(thing: Any, name: str) -> Iterator[Any]:
    if isinstance(thing, nn.Module):
        for names in (vars(thing), thing._modules, thing._parameters, thing._buffers):
            if name in names:
                yield names[name]
                return
        found = inspect.getattr_static(class_of(thing), name, None)
        if isinstance(found, staticmethod):
            yield found.__func__
        elif isinstance(found, FunctionType):
            yield MethodType(found, thing)
        elif isinstance(found, bool):
            yield found
    elif isinstance(thing, ModuleType | type):
        if hasattr(thing, name):
            yield getattr(thing, name)
    elif name in (names := getattr(thing, "__dict__", {})):
        yield names[name]


def _element(value: Value, where: Any) -> Value:
    """An element of a value: the one at ``where`` if that is known, or any."""
    if value.is_dict:
        known = value.entries is not None and where is not None and where in value.entries
        return value.entries[where] if known else Value(value.paths, is_unsure=True)  # type: ignore[index]
    parts = value.parts
    if parts is not None and isinstance(where, int) and -len(parts) <= where < len(parts):
        return parts[where]
    objects = tuple(child for thing in value.objects for child in _elements(thing, where))
    return Value(value.paths, objects, name=value.name)


def _elements(thing: Any, where: Any) -> Sequence[Any]:
    if isinstance(thing, nn.ModuleList | nn.Sequential | list | tuple):
        elements = list(thing)
        return [elements[where]] if isinstance(where, int) and -len(elements) <= where < len(elements) else elements
    if isinstance(thing, nn.ModuleDict):
        return [thing[where]] if isinstance(where, str) and where in thing else list(thing.values())
    return []


def _representatives(things: Sequence[Any]) -> list[Any]:
    """One of each kind: the elements of a list of blocks do alike."""
    if len(things) <= 2:
        return [thing for thing in things if thing is not None]
    return list(
        {(class_of(thing) if isinstance(thing, nn.Module) else id(thing)): thing for thing in things}.values()
    )


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _is_join(thing: Any) -> bool:
    return getattr(thing, "__module__", None) == "resperturb.perturbation.junctions"


def is_torch(thing: Any) -> bool:
    """Whether torch defines ``thing``."""
    module = getattr(thing, "__module__", None) or ""
    return module in ("torch", "math", "_operator", "operator") or module.startswith("torch.")
