"""The first wall: what is kept of a tool's source, and the builtins and imports that it sees.

A courtesy, not a protection: it keeps honest sources from doing by accident what they were not asked for
(example calls, prints, tests at the bottom of the file). Determined code gets around any such namespace; the
operating system's wall (lockdown.py, seccomp.py) is what holds it. Runs in the child only.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import symtable
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

_MODULES = """
babel base64 binascii bisect calendar cmath collections copy csv dataclasses dateutil datetime decimal dicttoxml
enum fractions functools heapq holidays io itertools json locale math numbers numpy operator pytz random re roman
statistics string sympy textwrap time typing unicodedata urllib.parse uuid xml
"""
ALLOWED_MODULES = frozenset(_MODULES.split())

_BUILTINS = """
abs all any ascii bin bool bytearray bytes callable chr classmethod complex delattr dict dir divmod enumerate filter
float format frozenset getattr globals hasattr hash hex id int isinstance issubclass iter len list locals map max
memoryview min next object oct ord pow print property range repr reversed round set setattr slice sorted
staticmethod str sum super tuple type vars zip Ellipsis NotImplemented __build_class__
"""

# Annotations stay text: many sources use names of `typing` that they do not import.
_FLAGS = importlib.import_module("__future__").annotations.compiler_flag
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


def is_allowed_module(name: str, names: Sequence[str] = ()) -> bool:
    """Whether `import name` (or `from name import names`) is on the list."""
    root = name.partition(".")[0]
    if root == "urllib":
        return name == "urllib.parse" or (name == "urllib" and list(names) == ["parse"])
    return root in ALLOWED_MODULES or name == "__future__"


def guarded_import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] = (),
    level: int = 0,
) -> Any:
    """`__import__` for tool code: modules of the fixed list only.

    C code of allowed modules imports through the caller's `__import__` as well (`datetime.strptime` its `_strptime`)
    and is told by the empty list that it passes, where an import statement passes None or a tuple.
    """
    from_c_code = isinstance(fromlist, list) and not fromlist
    if level or not (from_c_code or is_allowed_module(name, fromlist or ())):
        raise ImportError(f"module {name!r} is not available to tools")
    return builtins.__import__(name, globals, locals, fromlist, 0)


def tool_builtins() -> dict[str, Any]:
    """A fresh copy of the builtins that tool code sees (fresh, so that no call can change them for the next)."""
    return dict(_TABLE)


def _builtin_table() -> dict[str, Any]:
    table: dict[str, Any] = {name: getattr(builtins, name) for name in _BUILTINS.split()}
    for name, value in vars(builtins).items():
        if isinstance(value, type) and issubclass(value, BaseException):
            table[name] = value
    table["__import__"] = guarded_import
    return table


_TABLE = _builtin_table()


@dataclass(frozen=True)
class ToolSource:
    """One reduced and compiled source: run `code` in a fresh namespace, then take what it `defines`."""

    code: CodeType
    defines: frozenset[str]


def load_source(source: str, wanted: str = "", filename: str = "<tool>") -> ToolSource:
    """Reduce and compile one source. Raises SyntaxError, ValueError, RecursionError or MemoryError as `compile` does.

    `wanted` counts as used, so that `tool = some_function` is kept when `tool` is what is called.
    """
    tree = reduce_source(source, wanted)
    defines = {node.name for node in tree.body if isinstance(node, _DEFINITIONS)}
    for node in tree.body:
        defines.update(_bound_names(node))
    return ToolSource(compile(tree, filename, "exec", flags=_FLAGS, dont_inherit=True), frozenset(defines))


def reduce_source(source: str, wanted: str = "") -> ast.Module:
    """The module with its functions, its classes, and the imports and assignments that those use.

    Everything else at top level goes: calls, prints, asserts, loops, conditions and try blocks (imports inside the
    last two are kept when used and allowed). An assignment stays when kept code reads its name as a global, which
    keeps tables, constants and helper objects and drops `result = tool("example")` even where a function has a
    local of the same name; plain literals always stay.
    """
    tree = ast.parse(source)
    needed = _globals_read(symtable.symtable(source, "<tool>", "exec"))
    if not any(isinstance(node, _DEFINITIONS) and node.name == wanted for node in tree.body):
        needed.add(wanted)
    candidates: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, _DEFINITIONS):
            needed |= _names_read(*_evaluated_at_load(node))
        if isinstance(node, (ast.If, ast.Try)):
            candidates.extend(
                inner for inner in ast.walk(node) if isinstance(inner, _IMPORTS) and _is_allowed_import(inner)
            )
        else:
            candidates.append(node)
    kept: set[int] = set()
    grown = True
    while grown:
        grown = False
        for position, node in enumerate(candidates):
            if position in kept or not _is_kept(node, needed):
                continue
            kept.add(position)
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                needed |= _names_read(node)
                grown = True
    tree.body = [node for position, node in enumerate(candidates) if position in kept]
    return tree


def _is_kept(node: ast.stmt, needed: set[str]) -> bool:
    if isinstance(node, _DEFINITIONS):
        return True
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return False  # given to the compiler instead
    if isinstance(node, _IMPORTS):
        return bool(_bound_names(node) & (needed | {"*"}))
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
        return bool(_bound_names(node) & needed) or _is_literal(node)
    return False


def _is_allowed_import(node: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(node, ast.Import):
        return all(is_allowed_module(alias.name) for alias in node.names)
    return not node.level and is_allowed_module(node.module or "", [alias.name for alias in node.names])


def _is_literal(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> bool:
    if isinstance(node, ast.AugAssign) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if not all(isinstance(target, ast.Name) for target in targets):
        return False
    try:
        ast.literal_eval(node.value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _bound_names(node: ast.stmt) -> set[str]:
    """Names that a top-level import or assignment binds or changes (`table["x"] = 1` changes `table`)."""
    if isinstance(node, _IMPORTS):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign):
        targets: list[ast.expr] = list(node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    else:
        return set()
    names: set[str] = set()
    while targets:
        target = targets.pop()
        if isinstance(target, ast.Name):
            names.add(target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            targets.extend(target.elts)
        elif isinstance(target, (ast.Starred, ast.Subscript, ast.Attribute)):
            targets.append(target.value)
    return names


def _evaluated_at_load(node: ast.stmt) -> list[ast.AST]:
    """The expressions of a definition that run in the module's scope: decorators, defaults, bases."""
    parts: list[ast.AST] = []
    if isinstance(node, _DEFINITIONS):
        parts.extend(node.decorator_list)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        parts.extend(node.args.defaults)
        parts.extend(default for default in node.args.kw_defaults if default is not None)
    if isinstance(node, ast.ClassDef):
        parts.extend(node.bases)
        parts.extend(node.keywords)
    return parts


def _names_read(*nodes: ast.AST) -> set[str]:
    return {
        inner.id
        for node in nodes
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
    }


def _globals_read(table: symtable.SymbolTable) -> set[str]:
    """Names that functions and classes, at any depth, take from the module."""
    names: set[str] = set()
    for child in table.get_children():
        for symbol in child.get_symbols():
            if symbol.is_global() or symbol.is_declared_global():
                names.add(symbol.get_name())
        names |= _globals_read(child)
    return names
