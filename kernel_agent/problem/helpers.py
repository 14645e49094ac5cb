"""Helper files beside a problem are put into it: a problem is one source, wherever it is judged and delivered."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

from kernel_agent.errors import ProblemError
from kernel_agent.problem.python_source import names, statements

SPACES = "_namespaces"
FUTURE = "from __future__ import annotations\n\n"
ELSEWHERE = sys.stdlib_module_names | {"torch", "triton", "tvm_ffi", "numpy"}
"""What a problem means by these names is installed where it is judged, whatever lies beside its file."""

Sources = Mapping[str, ast.Module]
"""Syntax trees by the paths of their files."""

Import = ast.Import | ast.ImportFrom


def with_helpers(code: str, name: str, helpers: Mapping[str, str]) -> str:
    """The source with the `helpers` (text by path) above it, each once; their names stand for its imports of them.

    Raises ProblemError, which calls the source `name`, for a helper that is no Python or is not imported, for helpers
    that import one another, and where two files give one name to different things.
    """
    trees = {path: _parsed(text, path) for path, text in helpers.items()}
    own = _parsed(code, name)
    order: list[str] = []
    _gather(name, own, trees, order, ())
    if unused := [path for path in helpers if path not in order]:
        raise ProblemError(f"{name} imports nothing of {unused[0]}: leave that file out.")
    _check_names({path: trees[path] for path in order} | {name: own}, trees)
    parts = [_rewritten(helpers[path], trees[path], trees) for path in order] + [_rewritten(code, own, trees)]
    future = FUTURE if any(FUTURE.strip() in text for text in (*helpers.values(), code)) else ""
    future += f"import types as {SPACES}\n\n\n" if any(SPACES in part for part in parts) else ""
    return future + "\n\n\n".join(part.strip("\n") for part in parts) + "\n"


def whole(code: str, file: Path, helpers: Mapping[str, str]) -> str:
    """The source in `file` with its helpers. Raises ProblemError, also where one of these files imports a file beside
    it that is no helper."""
    for path, text in {str(file): code, **helpers}.items():
        known = {one.resolve() for one in map(Path, (path, *helpers))}
        for other in beside(text, Path(path).parent):
            if other.resolve() not in known:
                raise ProblemError(f"{path} imports {other}, a file beside it: give that too (--with {other}).")
    return with_helpers(code, str(file), helpers) if helpers else code


def beside(code: str, folder: Path) -> Iterator[Path]:
    """The Python files of a folder that a source imports."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # which is said where the source is read
    for node in _imports(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            first = [node.module] if node.module else []
            modules = [*first, *(".".join([*first, alias.name]) for alias in node.names)]
        for module in modules:
            if module.split(".")[0] in ELSEWHERE and not (isinstance(node, ast.ImportFrom) and node.level):
                continue
            place = folder.joinpath(*module.split("."))
            yield from (one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file())


def _parsed(text: str, path: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        where = f" in line {error.lineno}" if error.lineno else ""
        raise ProblemError(f"{path} does not parse: {error.msg}{where}.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"{path} does not parse: {error}.") from None


def _gather(path: str, tree: ast.Module, trees: Sources, order: list[str], above: tuple[str, ...]) -> None:
    """The helpers that a source imports, in an order in which each comes after those that it imports."""
    for node in _imports(tree):
        for other, _ in _reads(node, trees):
            if other in (*above, path):
                raise ProblemError(f"{path} and {other} import one another: write the problem as one source.")
            if other not in order:
                _gather(other, trees[other], trees, order, (*above, path))
                order.append(other)


def _imports(tree: ast.AST) -> Iterator[Import]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _reads(node: Import, trees: Sources) -> Iterator[tuple[str, ast.alias | None]]:
    """The helpers that an import reads, with the alias by which it binds the file itself, if it does."""
    match node:
        case ast.ImportFrom(module=str(module)) if path := _at(module, trees):
            yield path, None
        case ast.ImportFrom(module=module):
            dotted = [(f"{module}.{alias.name}" if module else alias.name, alias) for alias in node.names]
            yield from ((path, alias) for name, alias in dotted if (path := _at(name, trees)))
        case ast.Import():
            yield from ((path, alias) for alias in node.names if (path := _at(alias.name, trees)))


def _at(module: str, trees: Sources) -> str | None:
    """The path that ends as the module's dotted name."""
    parts = module.split(".")
    for path in trees:
        plain = PurePath(path).with_suffix("")
        places = plain.parts[:-1] if plain.name == "__init__" else plain.parts
        if list(places[-len(parts) :]) == parts:
            return path
    return None


def _check_names(files: Sources, trees: Sources) -> None:
    owners: dict[str, tuple[str, str]] = {}
    for path, tree in files.items():
        taken = {a.name for node in _imports(tree) if (None in dict(_reads(node, trees)).values()) for a in node.names}
        for node in statements(tree.body):
            for name, meaning in _meanings(node, path, trees):
                other, known = owners.setdefault(name, (path, meaning))
                if other != path and known != meaning and name not in taken:
                    raise ProblemError(f"{other} and {path} both define `{name}`: rename it in one of them.")


def _meanings(node: ast.stmt, path: str, trees: Sources) -> Iterator[tuple[str, str]]:
    """The names that a statement binds, but those of helpers, and what each stands for: something of a package, or of
    the file at `path`."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        files = {alias: file for file, alias in _reads(node, trees)}
        module = f"{files.get(None, node.module)}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            first = alias.name.split(".")[0]
            if None not in files or alias.asname not in (None, alias.name):
                meaning = first if not alias.asname and not module else module + alias.name
                yield alias.asname or first, files.get(alias, meaning)
        return
    yield from ((name, path) for name in names(ast.Module([node], [])))


def _rewritten(text: str, tree: ast.Module, trees: Sources) -> str:
    """A source in which assignments stand for its imports of helpers; `annotations` are imported above all."""
    lines = text.split("\n")
    for node in sorted(_imports(tree), key=lambda one: (-one.lineno, -one.col_offset)):
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not future and not any(True for _ in _reads(node, trees)):
            continue
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        before = lines[first].encode()[: node.col_offset].decode()
        after = lines[last - 1].encode()[node.end_col_offset :].decode()
        stands = [] if future else list(_stand_ins(node, trees))
        lines[first:last] = [f"{before}{'; '.join(stands) or ('pass' if before or after.strip() else '')}{after}"]
    return "\n".join(lines)


def _stand_ins(node: Import, trees: Sources) -> Iterator[str]:
    """Statements that bind what an import of helpers binds; a helper's names stand above."""
    files = {alias: path for path, alias in _reads(node, trees)}
    if None in files:
        yield from (f"{one.asname} = {one.name}" for one in node.names if one.asname and one.asname != one.name)
        return
    if rest := [alias for alias in node.names if alias not in files]:
        other = ast.Import(rest) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, rest, node.level)
        yield ast.unparse(other)
    for alias, path in files.items():
        assert alias is not None
        if isinstance(node, ast.Import) and "." in alias.name and not alias.asname:
            raise ProblemError(f"`import {alias.name}` cannot be replaced: write `from {alias.name} import ...`.")
        inner = ", ".join(f"{name}={name}" for name in sorted(names(trees[path]) - {"annotations"}))
        yield f"{alias.asname or alias.name} = {SPACES}.SimpleNamespace({inner})"
