"""What a caller hands over becomes source text: a path, a class, an instance or a function, and example inputs.

Objects are read with `inspect` and by their own methods; torch is never imported here: who hands over a module has it.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import site
import sys
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from kernel_agent.errors import THEIRS, ProblemError, shown
from kernel_agent.problem.construct import construct_module
from kernel_agent.problem.from_source import InitInputs
from kernel_agent.problem.helpers import whole, with_helpers
from kernel_agent.problem.python_source import used_names
from rag.text_files import NotText, plain_ends, read

FORMS = "source text, a path, a torch.nn.Module, its class, or a function"
MOST = 2**63 - 1
"""Where `torch.randint` ends."""

HEAD = "import torch  # noqa: E402\n"
HELD = """import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.held = {call}

    def forward(self, *inputs, **keywords):
        return self.held(*inputs, **keywords)
"""
WRAPPED = """import torch
{source}

class Model(torch.nn.Module):
    def forward(self, {taken}):
        return {name}({given})
"""


@dataclass(frozen=True, slots=True)
class ProblemSource:
    """The source of a problem, what it is called, and its constructor's arguments where they were found."""

    code: str
    name: str
    init_inputs: InitInputs | None = None


def source_of(
    code: object,
    name: str | None = None,
    inputs: object = None,
    init_inputs: InitInputs | None = None,
    helpers: Sequence[Path | str] = (),
) -> ProblemSource:
    """The source that `code` stands for (see FORMS), with a `get_inputs` that draws values like the example `inputs`.

    Of an object's module only what the object uses is taken: functions, classes, constants, imports. An instance's
    class and arguments are what counts, not its weights. `helpers` are files that the source imports. Raises
    ProblemError with one sentence.
    """
    if helpers and not isinstance(code, (str, Path)):
        raise ProblemError(
            "Helper files are for a problem that is text or a path: an object is read with what it uses."
        )
    if isinstance(code, (str, Path)):
        found = _text(code, name, {str(path): _read(Path(path)) for path in helpers})
    elif isinstance(code, type) and _is_module_class(code):
        found = ProblemSource(_of_class(code), name or code.__name__, init_inputs)
    elif isinstance(code, FunctionType):
        found = ProblemSource(_of_function(code, inputs), name or code.__name__)
    elif _is_module_class(type(code)):
        found = _of_instance(code, name, init_inputs)
    else:
        raise ProblemError(f"A problem is {FORMS}, not {shown(code)}.")
    if inputs is not None:
        if "\ndef get_inputs(" in f"\n{found.code}":
            raise ProblemError(f"{found.name} defines `get_inputs` itself; leave inputs out.")
        found = ProblemSource(f"{found.code.rstrip()}\n\n\n{_drawn(inputs)}", found.name, found.init_inputs)
    return ProblemSource(found.code, found.name, init_inputs if found.init_inputs is None else found.init_inputs)


def _text(code: str | Path, name: str | None, helpers: Mapping[str, str]) -> ProblemSource:
    is_path = isinstance(code, Path) or ("\n" not in code.strip() and code.strip().endswith(".py"))
    if not is_path:
        text = plain_ends(str(code))
        return ProblemSource(with_helpers(text, name or "the problem", helpers) if helpers else text, name or "kernel")
    path = Path(code)
    return ProblemSource(whole(_read(path), path, helpers), name or path.stem)


def _read(path: Path) -> str:
    try:
        return read(path)
    except OSError as error:
        raise ProblemError(f"{path} cannot be read ({error.strerror}).") from None
    except NotText as fault:
        raise ProblemError(f"{path} {fault}.") from None
    except ValueError as error:
        raise ProblemError(f"{shown(str(path))} cannot be read ({error}).") from None


def _is_module_class(kind: type) -> bool:
    return any(f"{base.__module__}.{base.__qualname__}" == "torch.nn.modules.module.Module" for base in kind.__mro__)


def _of_class(kind: type) -> str:
    if kind.__module__.startswith("torch."):
        raise ProblemError(f"`{kind.__name__}` is torch's own: give an instance of it.")
    source = Gathered().of(kind)
    return source if kind.__name__ == "Model" else f"{source}\n\nModel = {kind.__name__}\n"


def _of_function(function: FunctionType, inputs: object) -> str:
    """A module that calls the function with what it has to be given, and with what the example inputs name."""
    last = inputs[-1:] if isinstance(inputs, (list, tuple)) else ()
    named = {str(key) for one in (inputs, *last) if isinstance(one, Mapping) for key in one}
    by_place: list[str] = []
    by_keyword: list[str] = []
    for one in inspect.signature(function).parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise ProblemError(f"`{function.__name__}` takes `{one}`: only plain arguments can be given to a kernel.")
        if one.default is not one.empty and one.name not in named:
            continue
        (by_keyword if one.kind is one.KEYWORD_ONLY or one.default is not one.empty else by_place).append(one.name)
    taken = ", ".join([*by_place, *(["*", *by_keyword] if by_keyword else [])])
    given = ", ".join([*by_place, *(f"{name}={name}" for name in by_keyword)])
    return WRAPPED.format(source=Gathered().of(function), name=function.__name__, taken=taken, given=given)


def _of_instance(module: Any, name: str | None, init_inputs: InitInputs | None) -> ProblemSource:
    kind = type(module)
    if kind.__module__.startswith("torch."):
        return ProblemSource(HELD.format(call=_built(module)), name or kind.__name__, [])
    arguments = list(_arguments(module)) if init_inputs is None else init_inputs
    call = f"`{kind.__name__}{shown(arguments if isinstance(arguments, Mapping) else tuple(arguments))}`"
    try:
        with _same_random_numbers():
            made = construct_module(kind, arguments)
        differs = _difference(module, made)
    except THEIRS as error:
        raise ProblemError(f"{call} fails ({shown(error)}): give init_inputs.") from None
    if differs:
        raise ProblemError(
            f"{call} has other parameters or attributes than the module given ({differs}): "
            "give init_inputs, and change nothing after it is constructed."
        )
    return ProblemSource(_of_class(kind), name or kind.__name__, arguments)


def _arguments(module: Any) -> Iterator[Any]:
    """The constructor's arguments as far as they are kept in attributes of the same names."""
    kind = type(module)
    for one in inspect.signature(kind).parameters.values():
        value = getattr(module, one.name, None)
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) and _is_literal(value) and value is not None:
            yield value
        elif one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            return
        else:
            raise ProblemError(f"What `{kind.__name__}` was given as `{one.name}` is not known: give init_inputs.")


def _difference(one: Any, other: Any) -> str | None:
    """The first parameter, or plain value that either of two modules keeps, in which they differ."""
    for seen in (_shapes, _values):
        own, made = seen(one), seen(other)
        if own != made:
            return next(name for name in sorted(own.keys() | made.keys()) if own.get(name) != made.get(name))
    return None


def _shapes(module: Any) -> dict[str, str]:
    return {
        name: f"{getattr(value, 'dtype', type(value).__name__)}{tuple(getattr(value, 'shape', ()))}"
        for name, value in module.state_dict().items()
    }


def _values(module: Any) -> dict[str, str]:
    """The plain values that a module and those in it keep; whether it is trained does not count."""
    return {
        f"{place}.{name}".lstrip("."): repr(value)
        for place, inner in module.named_modules()
        for name, value in vars(inner).items()
        if name != "training" and not name.startswith("_") and _is_literal(value)
    }


def _built(module: Any) -> str:
    """A module of torch's own as the call that makes it, from what it says of itself."""
    kind = type(module)
    children = list(module.children())
    inner = ", ".join(_built(child) for child in children) if kind.__name__ == "Sequential" else module.extra_repr()
    call = f"torch.nn.{kind.__name__}({inner})"
    try:
        with _same_random_numbers():
            again = eval(call, {"torch": sys.modules["torch"]})  # what torch says of its own module
        same = repr(again) == repr(module) and _shapes(again) == _shapes(module)
    except (TypeError, ValueError, SyntaxError, NameError, AttributeError, RuntimeError):
        same = False
    if not same:
        raise ProblemError(f"`{kind.__name__}` does not say how it was made: write a class around it.")
    return call


def _same_random_numbers() -> Any:
    """What is constructed within leaves the caller's random numbers as they were."""
    return sys.modules["torch"].random.fork_rng(devices=[])


class Gathered:
    """The source of an object with all that it uses of its module, each name once, in an order that runs."""

    def __init__(self) -> None:
        self._parts: dict[str, str] = {}
        self._values: dict[str, object] = {}

    def of(self, thing: type | FunctionType) -> str:
        self._take(thing.__name__, thing)
        imports = [part for part in self._parts.values() if part.startswith(("import ", "from "))]
        others = [part for part in self._parts.values() if not part.startswith(("import ", "from "))]
        return "".join(imports) + "\n\n" + "\n\n".join(others)

    def _take(self, name: str, value: object) -> None:
        if name in self._values:
            if self._values[name] is not value:
                raise ProblemError(f"Two different things are called `{name}`: write the problem as one source.")
            return
        self._values[name] = value
        self._parts[name] = self._part(name, value)

    def _part(self, name: str, value: object) -> str:
        if isinstance(value, ModuleType):
            return f"import {value.__name__} as {name}\n" if value.__name__ != name else f"import {name}\n"
        if isinstance(value, (type, FunctionType)) or callable(value):
            return self._definition(name, value)
        if type(value).__module__ == "torch" and repr(value).startswith("torch."):
            self._take("torch", sys.modules["torch"])
            return f"{name} = {value!r}\n"
        if f"{type(value).__module__}.{type(value).__name__}" == "torch.device":
            self._take("torch", sys.modules["torch"])
            return f"{name} = torch.device({str(value)!r})\n"
        if isinstance(value, float):  # of which some are no literals
            return f"{name} = {value!r}\n" if isfinite(value) else f"{name} = float({str(value)!r})\n"
        if _is_literal(value):
            return f"{name} = {value!r}\n"
        kind = type(value).__name__
        raise ProblemError(f"The value of `{name}` cannot be written as source ({kind}): give source text.")

    def _definition(self, name: str, value: Any) -> str:
        home = sys.modules.get(getattr(value, "__module__", None) or "")
        own = getattr(value, "__name__", name)
        if home is not None and _is_installed(home) and getattr(home, own, None) is value:
            return f"from {home.__name__} import {own}" + (f" as {name}\n" if own != name else "\n")
        try:
            source = textwrap.dedent(inspect.getsource(value))
        except (OSError, TypeError):
            raise ProblemError(f"The source of `{name}` cannot be read: give source text.") from None
        if not source.startswith(("def ", "class ", "@")):
            raise ProblemError(f"`{name}` is not a plain function or class: give source text.")
        around = _around(value)
        for used in sorted(used_names(source)):
            if used in around:
                self._take(used, around[used])
            elif not hasattr(builtins, used) and used != own:
                raise ProblemError(f"`{own}` uses `{used}`, which is not at its module's top level: give source text.")
        return source if own == name else f"{source}\n{name} = {own}\n"


def _around(value: Any) -> Mapping[str, object]:
    """The names that a function or class sees: its module's, and what it has closed over."""
    found = dict(vars(sys.modules[value.__module__])) if value.__module__ in sys.modules else {}
    functions = [value, *vars(value).values()] if isinstance(value, type) else [value]
    for one in functions:
        if isinstance(one, FunctionType):
            found.update(one.__globals__)
            found.update(inspect.getclosurevars(one).nonlocals)
    return found


def _is_installed(module: ModuleType) -> bool:
    """Whether every Python of this machine's environment can import it: built in, standard, or in site-packages."""
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ in sys.builtin_module_names
    places = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("stdlib")]
    return any(Path(file).is_relative_to(place) for place in places)


def _is_literal(value: object) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (SyntaxError, *THEIRS):
        return False


def _drawn(inputs: object) -> str:
    """A `get_inputs` whose values are like the examples: shapes, dtypes, and the range or the spread."""
    examples = inputs if isinstance(inputs, (list, tuple, Mapping)) else [inputs]
    drawn = _like(list(examples) if isinstance(examples, tuple) else examples)
    return f"{HEAD}\n\ndef get_inputs():\n    return {drawn}\n"


def _like(example: Any) -> str:
    if isinstance(example, Mapping):
        return f"{{{', '.join(f'{key!r}: {_like(value)}' for key, value in example.items())}}}"
    if type(example) is list:
        return f"[{', '.join(map(_like, example))}]"
    if type(example) is tuple:
        return f"({''.join(f'{_like(one)}, ' for one in example)})"
    if _is_literal(example):
        return repr(example)
    if not all(hasattr(example, part) for part in ("shape", "dtype", "min", "max", "float")):
        raise ProblemError(f"An example input is a tensor, a number or a string, not {type(example).__name__}.")
    try:
        return _drawn_like(example)
    except THEIRS as error:
        raise ProblemError(f"An example input cannot be drawn again ({shown(error)}): write get_inputs.") from None


def _drawn_like(example: Any) -> str:
    shape, dtype = tuple(example.shape), str(example.dtype)
    if dtype == "torch.bool":
        share = float(example.float().mean()) if example.numel() else 0.5
        return f"(torch.rand({shape}) < {share:.3g})"
    if not example.dtype.is_floating_point:
        if example.dtype.is_complex:
            return f"torch.randn({shape}, dtype={dtype})"
        least, most = (int(example.min()), int(example.max())) if example.numel() else (0, 1)
        end = min(most + 1, MOST)
        return f"torch.randint({min(least, end - 1)}, {end}, {shape}, dtype={dtype})"
    cast = "" if dtype == "torch.float32" else f".to({dtype})"
    values = example.detach().double()
    low, high = (float(values.min()), float(values.max())) if example.numel() else (-1.0, 1.0)
    if not isfinite(high - low):
        raise ValueError("it holds infinities or NaN")
    if low >= 0 and high > 0:
        return f"(torch.rand({shape}) * {high - low:.4g} + {low:.4g}){cast}"
    mean, spread = (float(values.mean()), float(values.std(correction=0))) if example.numel() else (0.0, 1.0)
    if abs(mean) < 0.1 * spread and 0.8 < spread < 1.25:
        return f"torch.randn({shape}){cast}"
    return f"(torch.randn({shape}) * {spread:.4g} + {mean:.4g}){cast}"
