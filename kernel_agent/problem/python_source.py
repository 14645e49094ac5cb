"""What a PyTorch source defines, read off its syntax tree: which of its modules is meant, and where it ends."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernel_agent.errors import ProblemError

FORM = "define `Model` (a torch.nn.Module), `get_inputs` and `get_init_inputs`"
ENDS = ("sys.exit", "exit", "quit", "os._exit", "SystemExit")


@dataclass(frozen=True, slots=True)
class Main:
    """The module that a source is about: its name there, its class where the source defines it, and the modules that
    it was chosen before."""

    name: str
    node: ast.ClassDef | None
    others: tuple[str, ...] = ()


def main_module(tree: ast.Module, name: str, has_inputs: bool) -> Main:
    """`Model`, else the module that no other one of the source uses; of several, where the source `has_inputs` of its
    own, the last. Raises ProblemError, which calls the source `name`."""
    modules, model = _modules(tree), "Model" in names(tree)
    if model and (found := _model(tree, modules)):
        return found
    if model and modules:
        raise ProblemError(f"{name} uses the name `Model` for something else than a module: rename that.")
    if not modules:
        raise ProblemError(f"{name} holds no `Model` and no other subclass of nn.Module at its top level: {FORM}.")
    *others, last = _unused_by_others(tree, list(modules))
    if others and not has_inputs:
        listed = ", ".join(f"`{one}` (line {modules[one].lineno})" for one in (*others, last))
        raise ProblemError(
            f"{name} holds several modules that no other one uses, {listed}: "
            f"choose one by a last line such as `Model = {last}`."
        )
    return Main(last, modules[last], tuple(others))


def _modules(tree: ast.Module) -> dict[str, ast.ClassDef]:
    modules: dict[str, ast.ClassDef] = {}
    known = {"nn": "torch.nn", "Module": "torch.nn.Module"}
    for node in statements(tree.body):
        known.update(_bound(node, known))
        if isinstance(node, ast.ClassDef) and any(_is_module(base, node, modules, known) for base in node.bases):
            modules[node.name] = node
    return modules


def _model(tree: ast.Module, modules: Mapping[str, ast.ClassDef]) -> Main | None:
    """What the name `Model` stands for, where that can be a module."""
    for node in reversed(list(statements(tree.body))):
        if "Model" not in _names(node):
            continue
        match node:
            case ast.ClassDef():
                return Main("Model", modules["Model"]) if "Model" in modules else None
            case ast.Assign(value=ast.Name(id=other)) if other in modules:
                return Main("Model", modules[other])
            case ast.Import() | ast.ImportFrom() if modules:
                derive = [one for one in modules.values() if any(ast.unparse(base) == "Model" for base in one.bases)]
                return Main("Model", None) if derive else None
        return Main("Model", None)
    return None


def _bound(node: ast.stmt, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The other names that a statement gives to torch and what is in it; `*` are all names of a module."""
    match node:
        case ast.Import(names=aliases):
            yield from ((alias.asname or alias.name, alias.name) for alias in aliases)
        case ast.ImportFrom(module=module, names=aliases):
            yield from ((alias.asname or alias.name, f"{module or ''}.{alias.name}") for alias in aliases)
        case ast.Assign(targets=targets, value=ast.Name() | ast.Attribute() as value):
            yield from ((target.id, _whole(value, known)) for target in targets if isinstance(target, ast.Name))


def _is_module(
    base: ast.expr, node: ast.ClassDef, modules: Mapping[str, ast.ClassDef], known: Mapping[str, str]
) -> bool:
    """Whether a base makes a class a module: one of torch's or of the source, or an imported one of a class with a
    `forward`, or that is called Model."""
    whole, first = _whole(base, known), ast.unparse(base).partition(".")[0]
    if whole in modules or whole.startswith(("torch.nn.", "torch.jit.")):
        return True
    if known.get("*", "").startswith("torch.nn.") and "." not in whole:
        return True
    runs = any(isinstance(inner, ast.FunctionDef) and inner.name == "forward" for inner in node.body)
    return first in known and not whole.startswith("torch.") and (runs or node.name == "Model")


def _whole(name: ast.expr, known: Mapping[str, str]) -> str:
    """A dotted name with what its first part stands for."""
    first, dot, rest = ast.unparse(name).partition(".")
    return f"{known.get(first, first)}{dot}{rest}"


def names(tree: ast.Module) -> set[str]:
    """The names that the source binds at its top level, however."""
    return {name for node in statements(tree.body) for name in _names(node)}


def _names(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
        case ast.Assign() | ast.AnnAssign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))


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


def _unused_by_others(tree: ast.Module, modules: Sequence[str]) -> list[str]:
    """The modules that no other one uses, be it through what the source defines beside them; the last one where each
    uses another."""
    uses: dict[str, set[str]] = {}
    for node in statements(tree.body):
        for name in _names(node):
            uses.setdefault(name, set()).update(used_names(ast.unparse(node)))
    used = set[str]()
    for module in modules:
        reached, waiting = set[str](), [module]
        while waiting:
            new = uses.get(waiting.pop(), set()) - reached
            reached |= new
            waiting += new
        used |= reached - {module}
    return [module for module in modules if module not in used] or list(modules)[-1:]


def used_names(source: str) -> set[str]:
    """The global names that a piece of source reads."""
    top = symtable.symtable(source, "source", "exec")
    found = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced() and not symbol.is_assigned()}
    tables = list(top.get_children())
    while tables:
        table = tables.pop()
        tables += table.get_children()
        found |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    return found - {"__class__"}


def until_the_end(code: str, tree: ast.Module) -> str:
    """The source up to where it ends the program, if it has defined its functions and modules by then: what stands
    below a problem would not be reached otherwise."""
    defined = names(tree)
    for place, node in enumerate(tree.body):
        before = names(ast.Module(tree.body[:place], []))
        needed = {"get_inputs", *(defined & {"get_init_inputs", "Model"})}
        if needed <= before and _ends(node):
            lines = code.split("\n")
            rest = lines[node.lineno - 1].encode()[: node.col_offset].decode().rstrip(" ;\t")
            return "\n".join([*lines[: node.lineno - 1], rest])
    return code


def _ends(node: ast.AST) -> bool:
    """Whether a statement itself may end the program, and no function that it defines."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
            return False
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return False
        case ast.Call(func=func) if ast.unparse(func) in ENDS:
            return True
        case ast.Raise(exc=ast.Name(id="SystemExit")):
            return True
    return any(_ends(inner) for inner in ast.iter_child_nodes(node))
