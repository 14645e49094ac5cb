# ---- What ModelNew checks at each call, and how it runs under torch.compile. ----
import builtins as _ka_b
import weakref as _ka_weakref

_KA_OTHERWISE = "find a kernel for that, or set ModelNew.original_elsewhere = True to run the original instead"
_KA_NO_ORIGINAL = "find a kernel for that"
_KA_CALLED = {tuple((tuple(s), d) for s, d, _ in call["takes"]): call for call in _KA_CALLS}
_KA_LAID = {key: tuple(tuple(strides) for _, _, strides in call["takes"]) for key, call in _KA_CALLED.items()}
_ka_made = _ka_weakref.WeakValueDictionary()
_ka_forward, _ka_init = ModelNew.forward, ModelNew.__init__
_ka_convert, _ka_restore = ModelNew._apply, ModelNew.__setstate__
_ka_code = _ka_forward
while hasattr(_ka_code, "__wrapped__"):
    _ka_code = _ka_code.__wrapped__
_ka_code = _ka_code.__code__
_ka_positions = _ka_code.co_varnames[1 : _ka_code.co_argcount]
_ka_keywords = _ka_code.co_varnames[_ka_code.co_argcount :][: _ka_code.co_kwonlyargcount]


def _ka_leaves(value, found):
    if isinstance(value, (list, tuple)):
        for one in value:
            _ka_leaves(one, found)
    elif isinstance(value, dict):
        for one in value.values():
            _ka_leaves(one, found)
    else:
        found.append(value)
    return found


def _ka_filled(form, leaves):
    """A structure of `form` (None a leaf) with the next of `leaves` in each place."""
    if form is None:
        return next(leaves)
    kind, inner = form
    if kind == "dict":
        return {name: _ka_filled(one, leaves) for name, one in inner.items()}
    made = [_ka_filled(one, leaves) for one in inner]
    return tuple(made) if kind == "tuple" else made


def _ka_by_position(args, kwargs):
    """Keywords that are positions of forward as such, the others in forward's order."""
    while len(args) < len(_ka_positions) and _ka_positions[len(args)] in kwargs:
        args = (*args, kwargs.pop(_ka_positions[len(args)]))
    return args, {name: kwargs[name] for name in (*_ka_keywords, *kwargs) if name in kwargs}


def _ka_tensors(args, kwargs):
    return [leaf for leaf in _ka_leaves((args, kwargs), []) if isinstance(leaf, _ka_torch.Tensor)]


def _ka_kind(tensor):
    return f"{_ka_b.str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _ka_refused(self, sentence, args, kwargs):
    if self.original_elsewhere and _KA_ORIGINAL:
        return Model.forward(self, *args, **kwargs)
    raise ValueError(f"{sentence}: {_KA_OTHERWISE if _KA_ORIGINAL else _KA_NO_ORIGINAL}.")


def _ka_checked_parameters(self, device):
    """Raise ValueError where a parameter or buffer is of another dtype or shape than verified, or elsewhere."""
    named = {**dict(self.named_parameters()), **dict(self.named_buffers())}
    for name, (shape, dtype) in _KA_PARAMETERS.items():
        tensor = named.get(name)
        if tensor is None:
            continue
        if tensor.device != device and tensor.dim():
            raise ValueError(f"{name} is on {tensor.device} and the inputs are on {device}: move one of them.")
        if _ka_b.str(tensor.dtype) != f"torch.{dtype}" or list(tensor.shape) != shape:
            raise ValueError(f"{name} is {_ka_kind(tensor)}; this kernel was verified with {dtype} {shape}.")
    self._ka_device = device
    own = [(module._parameters, name) for module in self.modules() for name in module._parameters]
    self._ka_parameters = [(held, n, held[n], held[n].dtype) for held, n in own if held[n] is not None]


def _ka_call(self, *args, **kwargs):
    if kwargs:
        args, kwargs = _ka_by_position(args, kwargs)
    if _ka_torch.compiler.is_compiling():
        return _ka_compiled(self, args, kwargs)
    if not kwargs and _ka_as_verified(self, args):
        return _ka_forward(self, *args)
    return _ka_carefully(self, args, kwargs)


def _ka_as_verified(self, args):
    """Whether the inputs are tensors as in the first call that was verified, where the module is: the usual case."""
    device = self._ka_device
    if device is None or not args or len(args) != len(_KA_USUAL) or self._ka_otherwise:
        return False
    if _KA_MODE is not None and self.training is not _KA_MODE:
        return False
    for tensor, usual in zip(args, _KA_USUAL):
        if usual is None:
            if isinstance(tensor, _ka_torch.Tensor):
                return False
            continue
        shape, dtype, strides = usual
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
    here = device.type == "cpu" or device.index == _ka_torch.cuda.current_device()
    return here and _ka_same(self._ka_parameters)


def _ka_other_value(held, args, kwargs):
    """The verified value of an input that has another one now and was the same in every check, in words."""
    for leaf, kept in zip(_ka_leaves((args, kwargs), []), held):
        if kept is not None and (type(leaf) is not type(kept[0]) or leaf != kept[0]):
            return f"{kept[0]!r} as one of its inputs, which is {leaf!r} here"
    return None


def _ka_carefully(self, args, kwargs):
    """Call the kernel where it is right to; else say why not, or run the original."""
    tensors = _ka_tensors(args, kwargs)
    if not tensors:
        return _ka_forward(self, *args, **kwargs)
    device, key = tensors[0].device, tuple([(t.shape, t.dtype) for t in tensors])
    laid = _KA_READY.get(key)
    if self._ka_otherwise or (_KA_MODE is not None and self.training is not _KA_MODE):
        mode = f"ModelNew was verified with .{'train' if _KA_MODE else 'eval'}(), which this model depends on"
        return _ka_refused(self, self._ka_otherwise or mode, args, kwargs)
    if laid is not None and (other := _ka_other_value(_KA_HELD[key], args, kwargs)):
        return _ka_refused(self, f"ModelNew was verified for {other}", args, kwargs)
    if laid is None and _KA_CALLS:
        called = ", ".join(map(_ka_kind, tensors))
        return _ka_refused(self, f"ModelNew was verified for {_KA_TAKES}; it was called with {called}", args, kwargs)
    if device.type != _KA_DEVICE_TYPE:
        raise ValueError(f"This kernel runs on {_KA_DEVICE_TYPE}, and its inputs are on {device}: move them.")
    stray = False
    for n, tensor in enumerate(tensors):
        if tensor.device != device:
            raise ValueError(f"The inputs are on {device} and {tensor.device}: move them to one device.")
        if tensor.requires_grad and _ka_torch.is_grad_enabled():
            raise RuntimeError("This kernel gives no gradients: call it under torch.no_grad(), or detach its inputs.")
        if laid and (tensor.stride() != laid[n] or tensor.data_ptr() % 16):
            stray = True
    if device != self._ka_device or not _ka_same(self._ka_parameters):
        _ka_checked_parameters(self, device)
    if stray:
        if _KA_CHANGES:
            sentence = "ModelNew changes its inputs, and was verified for dense ones that begin at 16 bytes"
            return _ka_refused(self, sentence, args, kwargs)
        args, kwargs = _ka_dense(args, iter(laid)), _ka_dense(kwargs, iter(laid[len(_ka_tensors(args, {})) :]))
    if device.type == "cuda" and device.index != _ka_torch.cuda.current_device():
        with _ka_torch.cuda.device(device):
            return _ka_forward(self, *args, **kwargs)
    return _ka_forward(self, *args, **kwargs)


def _ka_same(parameters):
    for held, name, parameter, dtype in parameters:
        if held.get(name) is not parameter or parameter.dtype is not dtype:
            return False
    return True


def _ka_dense(value, laid):
    """The inputs in memory of the strides that were verified, aligned."""
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
_KA_HELD = {key: call["held"] for key, call in zip(_KA_READY, _KA_CALLED.values())}


def _ka_usual_inputs():
    """What each input by position is in the first call that was verified; nothing where they are not so plain."""
    if not _KA_CALLS or _KA_FORM[1][1] != ["dict", {}] or _ka_b.any(one is not None for one in _KA_FORM[1][0][1]):
        return []
    key, laid = [*_KA_READY.items()][0]
    if _ka_b.any(kept is not None for kept in _KA_HELD[key]):
        return []
    tensors = iter([(*one, strides) for one, strides in zip(key, laid)])
    return [next(tensors) if kind == "tensor" else None for kind in _KA_LEAVES]


_KA_USUAL = _ka_usual_inputs()


def _ka_run(key, count, tensors, *plain):
    """The operator that torch.compile sees: `tensors` are the inputs, and behind them what the module holds."""
    given, values = iter(tensors[:count]), iter(plain)
    leaves = [next(given) if kind == "tensor" else None if kind == "none" else next(values) for kind in _KA_LEAVES]
    args, kwargs = _ka_filled(_KA_FORM, iter(leaves))
    out = [t.contiguous() for t in _ka_leaves(_ka_call(_ka_made[key], *args, **kwargs), [])]
    held = {t.untyped_storage().data_ptr() for t in tensors}
    return [t.clone() if t.untyped_storage().data_ptr() in held else t for t in out]


def _ka_shapes(key, count, tensors, *plain):
    called = tuple(
        (tuple(_ka_b.int(n) for n in t.shape), _ka_b.str(t.dtype).removeprefix("torch.")) for t in tensors[:count]
    )
    if called not in _KA_CALLED:
        raise ValueError(f"ModelNew was verified for {_KA_TAKES}; it was called with {called}: {_KA_NO_ORIGINAL}.")
    where = tensors[0].device if tensors else _ka_torch.device(_KA_DEVICE_TYPE)
    return [_ka_torch.empty(s, dtype=_KA_DTYPE[d], device=where) for s, d in _KA_CALLED[called]["gives"]]


def _ka_compiled(self, args, kwargs):
    if not _KA_COMPILES:
        raise RuntimeError(_KA_WHY_NOT)
    tensors = _ka_tensors(args, kwargs)
    if _ka_torch.is_grad_enabled() and _ka_b.any([t.requires_grad for t in tensors]):
        raise RuntimeError("This kernel gives no gradients: call it under torch.no_grad(), or detach its inputs.")
    kinds = (_ka_b.bool, _ka_b.int, _ka_b.float, _ka_b.str)
    plain = [leaf for leaf in _ka_leaves((args, kwargs), []) if isinstance(leaf, kinds)]
    held = [t.detach() for t in [*self.parameters(), *self.buffers()]]
    out = _ka_operator(self._ka_key, len(tensors), tensors + held, *plain)
    return _ka_filled(_KA_RETURNS, iter(out))


def _ka_registered():
    name, schema = _KA_NAME, f"(int key, int count, Tensor[] tensors{_KA_PLAIN}) -> Tensor[]"
    while hasattr(_ka_torch.ops.kernel_agent, name):
        name += "_"
    made = _ka_torch.library.custom_op(f"kernel_agent::{name}", _ka_run, mutates_args=(), schema=schema)
    made.register_fake(_ka_shapes)
    return made


def _ka_enrol(self):
    self._ka_device, self._ka_parameters = None, []
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
        kinds = (_ka_b.bool, _ka_b.int, _ka_b.float, _ka_b.str)
        plain = _ka_b.all([leaf is None or isinstance(leaf, kinds) for both in leaves for leaf in both])
        if plain and leaves[0] != leaves[1]:
            return f"ModelNew was verified with {name}={one!r}; this module was made with {name}={other!r}"
    return None


def _ka_construct(self, *args, **kwargs):
    _ka_init(self, *args, **kwargs)
    _ka_enrol(self)
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
ModelNew._ka_device, ModelNew._ka_parameters, ModelNew._ka_otherwise, ModelNew._ka_key = None, (), None, 0
ModelNew.__init__, ModelNew.__setstate__ = _ka_construct, _ka_copied
ModelNew.forward, ModelNew._apply = _ka_call, _ka_moved
_KA_ORIGINAL = _KA_HAS_MODEL and Model in ModelNew.__mro__
_ka_operator = _ka_registered() if _KA_COMPILES else None
