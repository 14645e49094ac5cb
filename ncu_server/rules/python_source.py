"""A Python source as a tree, with what its names stand for."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

DEEPEST = 1000
"""Levels of a tree that is read. Interpreters differ in how many they take, and all take these."""


@dataclass(slots=True)
class Source:
    """A syntax tree with what every name in it stands for: `E.f` is `torch.cuda.Event.f` after the import of E.

    `bound` are the names that the module has once it runs, as far as the source says.
    """

    text: str
    tree: ast.Module
    bound: frozenset[str] = frozenset()
    aliases: dict[str, str] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, text: str) -> Source:
        """Raises what `ast.parse` and the symbol table raise, and RecursionError for more than `DEEPEST` levels."""
        tree = ast.parse(text)
        _refuse_depth(tree)
        source = cls(text, tree, frozenset(_bound(symtable.symtable(text, "candidate", "exec"))))
        for node in ast.walk(tree):
            source._learn(node)
        source.paths = {p for n in ast.walk(tree) if (p := source.path(n))} | set(source.aliases.values())
        return source

    def _learn(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                self.aliases |= {
                    a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in names
                }
                self.paths |= {a.name for a in names}
            case ast.ImportFrom(module=str(module), names=names):
                self.aliases |= {a.asname or a.name: f"{module}.{a.name}" for a in names}
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if (path := self.path(value)) and name != path:
                self.aliases.setdefault(name, path)

    def path(self, node: ast.AST) -> str | None:
        """The dotted path of a name or attribute, aliases resolved; getattr with a constant counts as an attribute."""
        match node:
            case ast.Name(id=name):
                return self.aliases.get(name, name)
            case ast.Attribute(value=value, attr=attr) if base := self.path(value):
                return f"{base}.{attr}"
            case ast.Attribute(attr=attr):
                return f"().{attr}"
            case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(attr)), *_]):
                return f"{self.path(value) or '()'}.{attr}"
        return None

    def imported(self, library: str) -> set[str]:
        """The names that imports of a library bind; `*` where one binds all that there are."""
        names: set[str] = set()
        for node in ast.walk(self.tree):
            match node:
                case ast.Import(names=given):
                    names |= {a.asname or library for a in given if a.name.split(".")[0] == library}
                case ast.ImportFrom(module=str(module), names=given) if module.split(".")[0] == library:
                    names |= {a.asname or a.name for a in given}
        return names

    def mentions(self, name: str) -> bool:
        """Whether a word stands anywhere but in imports, in texts and comments too."""
        imports = [ast.unparse(n) for n in ast.walk(self.tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        return name == "*" or len(word.findall(self.text)) > sum(len(word.findall(i)) for i in imports)

    def assigned(self) -> Iterator[str]:
        """Paths of the attributes that the source assigns, deletes, sets by setattr or in a namespace's dictionary; `*`
        stands for a name that is made at run time."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Attribute(ctx=ast.Store() | ast.Del()):
                    yield self.path(node) or ""
                case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[value, name, *_]):
                    yield f"{self.path(value)}.{_constant(name)}"
                case ast.Subscript(value=space, slice=name, ctx=ast.Store() | ast.Del()) if owner := _owner(space):
                    yield f"{self.path(owner)}.{_constant(name)}"
                case ast.Call(func=ast.Attribute(value=space, attr="update")) if owner := _owner(space):
                    yield f"{self.path(owner)}.*"


def _refuse_depth(tree: ast.Module) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise RecursionError(f"more than {DEEPEST} levels")


def _bound(table: symtable.SymbolTable) -> Iterator[str]:
    """What a module binds by any statement, under `if`, `try` or `with` too, and by a `global` of its functions."""
    top = table.get_type() == "module"
    for symbol in table.get_symbols():
        binds = symbol.is_assigned() or symbol.is_imported()
        if binds and (top or symbol.is_declared_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _bound(inner)


def unused_by_others(text: str, names: Collection[str]) -> list[str]:
    """Of the `names` that a source defines, those that no other of them uses, be it through what the source defines
    beside them; the last one where each uses another."""
    uses: dict[str, set[str]] = {}
    for node in statements(ast.parse(text).body):
        for name in _binds(node):
            uses.setdefault(name, set()).update(_reads(symtable.symtable(ast.unparse(node), "source", "exec")))
    used = set[str]()
    for name in names:
        reached, waiting = set[str](), [name]
        while waiting:
            new = uses.get(waiting.pop(), set()) - reached
            reached |= new
            waiting += new
        used |= reached - {name}
    return [name for name in names if name not in used] or list(names)[-1:]


def _reads(table: symtable.SymbolTable) -> Iterator[str]:
    """The names of the module that a statement reads, in whatever scope."""
    top = table.get_type() == "module"
    yield from (one.get_name() for one in table.get_symbols() if one.is_referenced() and (top or one.is_global()))
    for inner in table.get_children():
        yield from _reads(inner)


def demands_cuda(text: str) -> bool:
    """Whether a source names a cuda device and never asks whether there is one."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    called = {node.func.attr for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return "is_available" not in attributes and (
        "cuda" in called or any(re.fullmatch(r"cuda(:\d+)?", t) for t in texts)
    )


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """A module's statements, those under `if`, `try` and `with` too, but what only a program runs."""
    for node in body:
        match node:
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                yield from statements(node.orelse)
            case ast.If() | ast.For() | ast.While():
                yield from statements([*node.body, *node.orelse])
            case ast.With():
                yield from statements(node.body)
            case ast.Try():
                handled = [inner for handler in node.handlers for inner in handler.body]
                yield from statements([*node.body, *handled, *node.orelse, *node.finalbody])
            case _:
                yield node


def _binds(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))


def _constant(name: ast.expr) -> str:
    return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else "*"


def _owner(space: ast.expr) -> ast.expr | None:
    """What a dictionary of attributes belongs to: M of `vars(M)` or `M.__dict__`."""
    match space:
        case ast.Call(func=ast.Name(id="vars"), args=[owner]) | ast.Attribute(value=owner, attr="__dict__"):
            return owner
    return None
