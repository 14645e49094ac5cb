# ---- What ModelNew checks at each call. ----
import argparse as _ka_argparse
import builtins as _ka_b
import copy as _ka_copy
import enum as _ka_enum
import inspect as _ka_inspect
import types as _ka_types
import weakref as _ka_weakref

_KA_OTHERWISE = "find a kernel for that, or set ModelNew.original_elsewhere = True to run the original instead"
_KA_NO_ORIGINAL = "find a kernel for that"
_KA_AUTOCAST = "ModelNew was verified without torch.autocast, which is on here"
_KA_VALUES = (_ka_b.bool, _ka_b.int, _ka_b.float, _ka_b.str)
_KA_FITS = {
    "float": (_ka_b.float, _ka_b.int),
    "int": (_ka_b.int,),
    "bool": (_ka_b.bool,),
    "str": (_ka_b.str,),
    "none": (type(None),),
}
_KA_CALLED = {}
for _ka_one in _KA_CALLS:
    _KA_CALLED.setdefault(tuple((tuple(s), d) for s, d, _ in _ka_one["takes"]), []).append(_ka_one)
_KA_LAID = {key: tuple(tuple(strides) for _, _, strides in calls[0]["takes"]) for key, calls in _KA_CALLED.items()}
_ka_made = _ka_weakref.WeakValueDictionary()
_ka_forward, _ka_init = ModelNew.forward, ModelNew.__init__
_ka_convert, _ka_restore = ModelNew._apply, ModelNew.__setstate__
_ka_code = _ka_inspect.unwrap(_ka_forward).__code__
_ka_positions = _ka_code.co_varnames[1 : _ka_code.co_argcount]
_ka_keywords = _ka_code.co_varnames[_ka_code.co_argcount :][: _ka_code.co_kwonlyargcount]
_ka_any_number = _ka_b.bool(_ka_code.co_flags & (_ka_inspect.CO_VARARGS | _ka_inspect.CO_VARKEYWORDS))


def _ka_fields(value):
    """What a dataclass, or an object that is data, holds by name; None for all else."""
    kind = type(value)
    if hasattr(kind, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in kind.__dataclass_fields__}
    if kind not in (_ka_types.SimpleNamespace, _ka_argparse.Namespace) and kind.__module__ != __name__:
        return None
    if isinstance(value, (list, tuple, dict, type, _ka_enum.Enum)) or callable(value):
        return None
    if getattr(_ka_b, kind.__name__, None) is kind:
        return None
    found = {}
    for one in reversed(kind.__mro__[:-1]):
        found |= {n: v for n, v in vars(one).items() if n[:2] != "__" and not hasattr(v, "__get__")}
    return {n: v for n, v in found.items() if not isinstance(v, type)} | getattr(value, "__dict__", {})


def _ka_leaves(value, found):
    if isinstance(value, (_ka_torch.Tensor, *_KA_VALUES)) or value is None:
        found.append(value)
    elif (fields := _ka_fields(value)) is not None:
        for one in fields.values():
            _ka_leaves(one, found)
    elif isinstance(value, (list, tuple)):
        for one in value:
            _ka_leaves(one, found)
    elif isinstance(value, dict):
        for one in value.values():
            _ka_leaves(one, found)
    else:
        found.append(value)
    return found


def _ka_by_position(args, kwargs):
    """Keywords that are positions of forward as such, the others in forward's order."""
    while len(args) < len(_ka_positions) and _ka_positions[len(args)] in kwargs:
        args = (*args, kwargs.pop(_ka_positions[len(args)]))
    return args, {name: kwargs[name] for name in (*_ka_keywords, *kwargs) if name in kwargs}


def _ka_tensors(args, kwargs):
    return [leaf for leaf in _ka_leaves((args, kwargs), []) if isinstance(leaf, _ka_torch.Tensor)]


def _ka_defaults():
    """Arguments of forward by name with what stands for them where they are left out, if the original's agrees."""
    functions = [_ka_forward, getattr(globals().get("Model"), "forward", _ka_forward)]
    signatures = [_ka_inspect.signature(_ka_inspect.unwrap(one)).parameters.values() for one in functions]
    own, other = [{p.name: p.default for p in taken if p.default is not p.empty} for taken in signatures]
    return {name: value for name, value in own.items() if name in other and _ka_alike(other[name], value)}


def _ka_alike(one, other):
    plain = one is None or isinstance(one, _KA_VALUES)
    return one is other or (plain and type(one) is type(other) and one == other)


def _ka_plain(leaf):
    """A plain value as it is, another one as text, as the verified values are written."""
    return leaf if leaf is None or isinstance(leaf, _KA_VALUES) else _ka_b.str(getattr(leaf, "__name__", leaf))


def _ka_kind(tensor):
    return f"{_ka_b.str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _ka_refused(self, sentence, args, kwargs, instead=None, fault=ValueError):
    if self.original_elsewhere and _KA_ORIGINAL:
        return Model.forward(self, *args, **kwargs)
    raise fault(f"{sentence}: {instead or (_KA_OTHERWISE if _KA_ORIGINAL else _KA_NO_ORIGINAL)}.")


def _ka_held(self):
    return [*self.named_parameters(), *self.named_buffers()]


def _ka_layout(tensor):
    """How parameters lie: their strides, and whether they begin at 16 bytes; None before their shapes are known."""
    if isinstance(tensor, _ka_torch.nn.parameter.UninitializedTensorMixin):
        return None
    return tensor.stride(), tensor.device.type == "meta" or tensor.data_ptr() % 16 == 0


def _ka_checked_parameters(self, device):
    """Raise ValueError where a parameter or buffer is not as it was verified, ImportError where the GPU is not."""
    if _KA_ON_GPU:
        _ka_place(device)
    for name, tensor in _ka_held(self):
        if tensor.device != device and tensor.dim():
            raise ValueError(f"{name} is on {tensor.device} and the inputs are on {device}: move one of them.")
        shape, dtype = _KA_PARAMETERS.get(name, (None, None))
        if dtype and (_ka_b.str(tensor.dtype) != f"torch.{dtype}" or list(tensor.shape) != shape):
            raise ValueError(f"{name} is {_ka_kind(tensor)}; this kernel was verified with {dtype} {shape}.")
        made, now = self._ka_laid.get(name), _ka_layout(tensor)
        if made and (now[0] != made[0] or made[1] > now[1]):
            raise ValueError(
                f"{name} has strides {list(now[0])}{'' if now[1] else ' and does not begin at 16 bytes'}; this kernel "
                f"was verified with {list(made[0])}: give it memory of its own by .contiguous().clone()."
            )
    own = [held for module in self.modules() for held in (module._parameters, module._buffers)]
    rows = [(held, name, held[name]) for held in own for name in held if held[name] is not None]
    self._ka_watched = [(*row, row[2].data_ptr(), row[2].dtype, row[2].shape, row[2].stride()) for row in rows]
    self._ka_device = device


def _ka_call(self, *args, **kwargs):
    if kwargs:
        args, kwargs = _ka_by_position(args, kwargs)
    if _ka_torch.compiler.is_compiling():
        return _ka_compiled(self, args, kwargs)
    if _ka_torch.jit.is_tracing():
        return _ka_refused(self, "torch.jit.trace cannot follow this kernel", args, kwargs)
    if not kwargs and _ka_as_verified(self, args):
        return _ka_forward(self, *args)
    return _ka_carefully(self, args, kwargs)


def _ka_as_verified(self, args):
    """Whether the inputs are tensors as in the first call that was verified, where the module is: the usual case."""
    device = self._ka_device
    if device is None or self._ka_otherwise or _ka_autocast(_KA_DEVICE_TYPE):
        return False
    if len(args) != _KA_COUNT:
        args += _KA_REST.get(len(args), ())
        if len(args) != _KA_COUNT:
            return False
    if _KA_MODE is not None and self.training is not _KA_MODE:
        return False
    for tensor, usual in zip(args, _KA_USUAL):
        shape, dtype, strides = usual
        if dtype is None:
            if type(tensor) not in shape or (strides and tensor != strides[0]):
                return False
            continue
        if (
            not isinstance(tensor, _ka_torch.Tensor)
            or tensor.shape != shape
            or tensor.dtype is not dtype
            or tensor.stride() != strides
            or tensor.device != device
            or tensor.data_ptr() % 16
            or tensor.requires_grad
        ):
            return False
    here = not _KA_ON_GPU or device.index == _ka_torch.cuda.current_device()
    return here and _ka_same(self._ka_watched)


def _ka_given(call, args, kwargs):
    """The inputs that a verified call has too, and what else sets this one apart, in words; None for nothing."""
    if _ka_any_number:
        return (args, kwargs), None
    named = dict(zip(_ka_positions, args)) | kwargs
    verified = [*_ka_positions[: len(call["form"][1][0][1])], *call["form"][1][1][1]]
    for name in named:
        if name not in verified and not (name in _ka_usually and _ka_alike(named[name], _ka_usually[name])):
            return None, f"without another value of {name} than its default"
    for name in verified:
        if name not in named and name not in _ka_usually:
            return None, f"with a value of {name}"
    return [named[name] if name in named else _ka_usually[name] for name in verified], None


def _ka_misfit(call, args, kwargs):
    """What sets these inputs apart from a verified call on tensors of the same shapes, in words; None for nothing."""
    if not call["leaves"]:
        return None
    given, other = _ka_given(call, args, kwargs)
    if other:
        return other
    leaves, kinds = _ka_leaves(given, []), call["leaves"]
    if len(leaves) != len(kinds):
        return f"with {len(kinds)} values among its inputs, of which {len(leaves)} are here"
    for leaf, kind, kept in zip(leaves, kinds, call["held"] or [None] * len(kinds)):
        if kind in _KA_FITS and type(leaf) not in _KA_FITS[kind]:
            return f"for a {kind} as one of its inputs, which is {leaf!r} here"
        if kept is not None and not _ka_alike(kept[0], _ka_plain(leaf)):
            return f"for {kept[0]!r} as one of its inputs, which is {_ka_plain(leaf)!r} here"
    return None


def _ka_carefully(self, args, kwargs):
    """Call the kernel where it is right to; else say why not, or run the original."""
    tensors = _ka_tensors(args, kwargs)
    if not tensors:
        return _ka_forward(self, *args, **kwargs)
    device, key = tensors[0].device, tuple([(t.shape, t.dtype) for t in tensors])
    if sentence := _ka_unverified(self, key, tensors, args, kwargs):
        return _ka_refused(self, sentence, args, kwargs)
    if device.type != _KA_DEVICE_TYPE:
        sentence = f"This kernel runs on {_KA_DEVICE_TYPE}, and its inputs are on {device}"
        return _ka_refused(self, sentence, args, kwargs, "move them")
    laid, stray = _KA_READY.get(key), False
    for n, tensor in enumerate(tensors):
        if tensor.device != device:
            raise ValueError(f"The inputs are on {device} and {tensor.device}: move them to one device.")
        if tensor.requires_grad and _ka_torch.is_grad_enabled():
            instead = "call it under torch.no_grad(), or detach its inputs"
            return _ka_refused(self, "This kernel gives no gradients", args, kwargs, instead, RuntimeError)
        if laid and (tensor.stride() != laid[n] or tensor.data_ptr() % 16):
            stray = True
    if device != self._ka_device or not _ka_same(self._ka_watched):
        _ka_checked_parameters(self, device)
    if stray:
        if _KA_CHANGES:
            sentence = "ModelNew changes its inputs, and was verified for dense ones that begin at 16 bytes"
            return _ka_refused(self, sentence, args, kwargs)
        args, kwargs = _ka_dense(args, iter(laid)), _ka_dense(kwargs, iter(laid[len(_ka_tensors(args, {})) :]))
    if _KA_ON_GPU and device.index != _ka_torch.cuda.current_device():
        with _ka_torch.cuda.device(device):
            return _ka_forward(self, *args, **kwargs)
    return _ka_forward(self, *args, **kwargs)


def _ka_unverified(self, key, tensors, args, kwargs):
    """Why this call is none that was verified, in a sentence; None where it is one."""
    if self._ka_otherwise:
        return self._ka_otherwise
    if _KA_MODE is not None and self.training is not _KA_MODE:
        return f"ModelNew was verified with .{'train' if _KA_MODE else 'eval'}(), which this model depends on"
    if _ka_autocast(_KA_DEVICE_TYPE):
        return _KA_AUTOCAST
    if odd := [t.layout for t in tensors if t.layout is not _ka_torch.strided]:
        return f"ModelNew was verified for dense tensors; it was called with one of the layout {odd[0]}"
    if key not in _KA_READY and _KA_CALLS:
        called = ", ".join(map(_ka_kind, tensors))
        return f"ModelNew was verified for {_KA_TAKES}; it was called with {called}"
    others = [_ka_misfit(call, args, kwargs) for call in _KA_KNOWN.get(key, ())]
    return f"ModelNew was verified {others[-1]}" if others and _ka_b.all(others) else None


def _ka_same(watched):
    """Whether parameters and buffers are those that were checked, and lie where they lay."""
    for held, name, tensor, pointer, dtype, shape, strides in watched:
        if (
            held.get(name) is not tensor
            or tensor.data_ptr() != pointer
            or tensor.dtype is not dtype
            or tensor.stride() != strides
            or tensor.shape != shape
        ):
            return False
    return True


def _ka_dense(value, laid):
    """The inputs in memory of the strides that were verified, aligned."""
    if not isinstance(value, _ka_torch.Tensor) and (fields := _ka_fields(value)) is not None:
        dense = {name: _ka_dense(one, laid) for name, one in fields.items()}
        if isinstance(value, dict):
            return type(value)(**dense)
        made = _ka_copy.copy(value)
        for name, one in dense.items():
            object.__setattr__(made, name, one)
        return made
    if isinstance(value, (list, tuple)):
        made = [_ka_dense(one, laid) for one in value]
        if isinstance(value, list):
            return made
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    if isinstance(value, dict):
        return {name: _ka_dense(one, laid) for name, one in value.items()}
    if not isinstance(value, _ka_torch.Tensor):
        return value
    strides = next(laid)
    if value.stride() == strides and value.data_ptr() % 16 == 0:
        return value
    return _ka_torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)


_KA_DTYPE = {_ka_b.str(dtype).removeprefix("torch."): dtype for dtype in _KA_DTYPES}
_KA_READY = {
    tuple([(_ka_torch.Size(shape), _KA_DTYPE[dtype]) for shape, dtype in key]): laid for key, laid in _KA_LAID.items()
}
_KA_KNOWN = dict(zip(_KA_READY, _KA_CALLED.values()))
_ka_usually = _ka_defaults()


def _ka_usual_inputs():
    """Each input by position in the first call that was verified, a tensor by its shape, dtype and strides, another by
    the types that fit it, None and the value that it was verified with alone; nothing where they are not so plain."""
    call = _KA_CALLS[0] if _KA_CALLS else {"form": None, "leaves": []}
    if not call["leaves"] or call["form"][1][1] != ["dict", {}]:
        return []
    if _ka_b.any(one is not None for one in call["form"][1][0][1]):
        return []
    tensors = iter([(_ka_torch.Size(s), _KA_DTYPE[d], tuple(strides)) for s, d, strides in call["takes"]])
    kinds = zip(call["leaves"], call["held"] or [None] * len(call["leaves"]))
    return [next(tensors) if kind == "tensor" else (_KA_FITS.get(kind, ()), None, kept) for kind, kept in kinds]


_KA_USUAL = _ka_usual_inputs()
_KA_COUNT = len(_KA_USUAL) or -1
_KA_REST = {
    n: tuple([_ka_usually[name] for name in _ka_positions[n:_KA_COUNT]])
    for n in _ka_b.range(len(_KA_USUAL))
    if set(_ka_positions[n:_KA_COUNT]) <= set(_ka_usually)
}
_ka_autocast = _ka_torch.is_autocast_enabled


def _ka_enrol(self):
    self._ka_device, self._ka_watched = None, []
    self._ka_key = _ka_b.max(_ka_made.keys(), default=0) + 1
    _ka_made[self._ka_key] = self


def _ka_named(args, kwargs):
    """A constructor's arguments by name, with the defaults of those that are not given."""
    code, defaults = _ka_init.__code__, _ka_init.__defaults__ or ()
    names = code.co_varnames[1 : code.co_argcount]
    usual = dict(zip(names[len(names) - len(defaults) :], defaults)) | (_ka_init.__kwdefaults__ or {})
    return usual | dict(zip((*names, *range(len(args))), args)) | kwargs


def _ka_made_otherwise(args, kwargs):
    """A sentence where a module is made with other arguments than the one that was verified."""
    if _KA_MADE is None or not hasattr(_ka_init, "__code__"):
        return None
    verified, given = _ka_named(*_KA_MADE), _ka_named(args, kwargs)
    for name in {**verified, **given}:
        one, other = verified.get(name), given.get(name)
        leaves = _ka_leaves(one, []), _ka_leaves(other, [])
        plain = _ka_b.all([leaf is None or isinstance(leaf, _KA_VALUES) for both in leaves for leaf in both])
        if plain and leaves[0] != leaves[1]:
            return f"ModelNew was verified with {name}={one!r}; this module was made with {name}={other!r}"
    return None


def _ka_construct(self, *args, **kwargs):
    _ka_init(self, *args, **kwargs)
    _ka_enrol(self)
    self._ka_laid = {name: _ka_layout(tensor) for name, tensor in _ka_held(self)}
    self._ka_otherwise = _ka_made_otherwise(args, kwargs)
    if self._ka_otherwise and not (self.original_elsewhere and _KA_ORIGINAL):
        _ka_refused(self, self._ka_otherwise, args, kwargs)


def _ka_copied(self, state):
    _ka_restore(self, state)
    _ka_enrol(self)


def _ka_moved(self, change, *args, **kwargs):
    for dtype in {parameter.dtype for parameter in self.parameters()}:
        if dtype.is_floating_point and change(_ka_torch.empty(0, dtype=dtype)).dtype != dtype:
            raise TypeError(f"This kernel was verified with parameters of {dtype}; it cannot change to another dtype.")
    self._ka_device = None
    return _ka_convert(self, change, *args, **kwargs)


ModelNew.original_elsewhere = False
ModelNew._ka_device, ModelNew._ka_watched, ModelNew._ka_otherwise, ModelNew._ka_key = None, (), None, 0
ModelNew._ka_laid = {}
ModelNew.__init__, ModelNew.__setstate__ = _ka_construct, _ka_copied
ModelNew.forward, ModelNew._apply = _ka_call, _ka_moved
_KA_ORIGINAL = _KA_HAS_MODEL and Model in ModelNew.__mro__
