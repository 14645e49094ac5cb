"""A problem as people keep it: one module of any name, and the functions that say what it is called with."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from ncu_server.rules.python_source import unused_by_others
from ncu_server.worker.building.modules import Arguments, build, load, seeded
from ncu_server.worker.calls import Call, called, readings
from ncu_server.worker.tensors import mapped

LINE = 200  # characters of a fault's text that a note shows
INPUTS, ARGUMENTS = "get_inputs", "get_init_inputs"
# What code raises that is called otherwise than it was written for.
MISREAD = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError, ArithmeticError)


class LoadedProblem:
    """A loaded problem: `model_class` is its `Model`, else the module of its own that no other one of its own uses.

    `note` says which it is where there was a choice. `get_init_inputs` may be missing where the constructor needs no
    arguments. Raises AttributeError for a source without a module or `get_inputs`, ImportError for one that needs
    another file.
    """

    def __init__(self, source: str) -> None:
        try:
            self.module = load(source, "problem", INPUTS)
        except ImportError as missing:
            raise _unmet(missing) from missing
        self.note: str | None = None
        self.refuses = ""
        self.model_class = self._model_class(source)
        if not hasattr(self.module, INPUTS):
            raise AttributeError(f"the problem defines no `{INPUTS}`, which gives what `forward` is called with")

    @property
    def variants(self) -> list[str]:
        """`get_inputs` and every further function `get_inputs_*`, each of which gives inputs of other shapes."""
        further = (n for n, f in vars(self.module).items() if n.startswith(f"{INPUTS}_") and callable(f))
        return [INPUTS, *further]

    def built(
        self, parameter_seed: int, device: str, make: Callable[..., torch.nn.Module] = build
    ) -> tuple[torch.nn.Module, Arguments]:
        """The model, and the arguments that it was constructed with: of the ways to read what `get_init_inputs` gives
        the first by which the model can be constructed and called."""
        with seeded(parameter_seed):
            given = _given(getattr(self.module, ARGUMENTS, lambda: None))
        found = [(args, kwargs, torch.get_default_dtype()) for args, kwargs in readings(self.model_class, given)]
        fitting = (one for one in found[:-1] if self._runs(one, parameter_seed, device))
        arguments = next(fitting, found[-1])
        return make(self.model_class, copy.deepcopy(arguments), parameter_seed, device), arguments

    def _runs(self, arguments: Arguments, seed: int, device: str) -> bool:
        try:
            model = build(self.model_class, copy.deepcopy(arguments), seed, device)
            calls = self.drawn_on(device, INPUTS, seed, model.forward)
        except torch.OutOfMemoryError:
            raise
        except MISREAD:
            return False
        return any(_comes_to_its_end(model, mapped(call, lambda tensor: tensor.to(device))) for call in calls)

    def drawn(self, variant: str, input_seed: int, forward: Callable[..., Any], device: str = "cpu") -> list[Call]:
        """The calls that what `variant` gives under the seed may stand for, the likeliest first; tensors that name no
        device are made on this one."""
        with seeded(input_seed), torch.device(device) if device != "cpu" else contextlib.nullcontext():
            given = _given(getattr(self.module, variant))
        if given is None:
            raise TypeError(f"{variant}() returns None; it should return a list of what `forward` is called with")
        return readings(forward, given)

    def drawn_on(self, device: str, variant: str, input_seed: int, forward: Callable[..., Any]) -> list[Call]:
        """As `drawn`, with the device as the default one, or on the host where that raises (`refuses` says what). One
        problem keeps to one way: values differ by device."""
        if not self.refuses and device != "cpu":
            try:
                return self.drawn(variant, input_seed, forward, device)
            except torch.OutOfMemoryError:
                raise
            except MISREAD as fault:
                words = " ".join(str(fault).split())[:LINE]
                self.refuses = f"with the GPU as the default device it raises {type(fault).__name__}: {words}"
        return self.drawn(variant, input_seed, forward)

    def _model_class(self, source: str) -> Any:
        if callable(named := getattr(self.module, "Model", None)):
            return named
        own = [name for name, value in vars(self.module).items() if _is_own(self.module, name, value)]
        if not own:
            raise AttributeError("the problem defines no `Model`, and no other subclass of torch.nn.Module")
        main = unused_by_others(source, own)
        if len(main) > 1:
            others = ", ".join(f"`{name}`" for name in main[:-1])
            self.note = f"judged is the last module, `{main[-1]}`, and not {others}: name one `Model` to choose it"
        return getattr(self.module, main[-1])


def _given(function: Callable[[], Any]) -> Any:
    """What one of the functions gives; of a generator, which draws as it goes, a list."""
    found = function()
    return list(found) if isinstance(found, Iterator) else found


def _comes_to_its_end(model: torch.nn.Module, call: Call) -> bool:
    try:
        with torch.no_grad():
            called(copy.deepcopy(model), call)
    except torch.OutOfMemoryError:
        raise
    except MISREAD:
        return False
    return True


def _is_own(module: ModuleType, name: str, value: Any) -> bool:
    """Whether a name is that of a module class which the source itself defines."""
    is_class = isinstance(value, type) and issubclass(value, torch.nn.Module)
    return is_class and value.__module__ == module.__name__ and value.__name__ == name


def _unmet(missing: ImportError) -> ImportError:
    """The fault in words that say what would help; one from inside an installed package is left as it is."""
    if "no known parent package" in str(missing):
        what = "it imports a file beside it by a relative import"
    elif isinstance(missing, ModuleNotFoundError) and missing.name:
        what = f"it imports `{missing.name}`, which is not installed where kernels are measured"
    else:
        return missing
    return ImportError(f"{what}; a problem is one file: put what it uses of that into it, or install the package")
