# ---- How ModelNew runs under torch.compile: as one operator. ----
def _ka_filled(form, leaves):
    """A structure of `form` (None a leaf) with the next of `leaves` in each place."""
    if form is None:
        return next(leaves)
    kind, inner = form
    if kind == "dict":
        return {name: _ka_filled(one, leaves) for name, one in inner.items()}
    made = [_ka_filled(one, leaves) for one in inner]
    return tuple(made) if kind == "tuple" else made


def _ka_run(key, count, tensors, *plain):
    """The operator that torch.compile sees: `tensors` are the inputs, and behind them what the module holds."""
    given, values = iter(tensors[:count]), iter(plain)
    leaves = [next(given) if kind == "tensor" else None if kind == "none" else next(values) for kind in _KA_LEAVES]
    args, kwargs = _ka_filled(_KA_FORM, iter(leaves))
    out = [t.contiguous() for t in _ka_leaves(_ka_called_with(tensors[count:], _ka_made[key], args, kwargs), [])]
    held = {t.untyped_storage().data_ptr() for t in tensors}
    return [t.clone() if t.untyped_storage().data_ptr() in held else t for t in out]


def _ka_called_with(weights, model, args, kwargs):
    """The module called with these parameters and buffers, which torch.func.functional_call may have put in."""
    own = dict(_ka_held(model))
    given = dict(zip(own, weights))
    if _ka_same([(given, name, given[name], t.data_ptr(), t.dtype, t.shape, t.stride()) for name, t in own.items()]):
        return _ka_call(model, *args, **kwargs)
    out = _ka_torch.func.functional_call(model, given, tuple(args), kwargs)
    model._ka_device, model._ka_watched = None, []  # those were checked, and its own are back
    return out


def _ka_shapes(key, count, tensors, *plain):
    called = tuple(
        (tuple(_ka_b.int(n) for n in t.shape), _ka_b.str(t.dtype).removeprefix("torch.")) for t in tensors[:count]
    )
    if called not in _KA_CALLED:
        raise ValueError(f"ModelNew was verified for {_KA_TAKES}; it was called with {called}: {_KA_NO_ORIGINAL}.")
    where = tensors[0].device if tensors else _ka_torch.device(_KA_DEVICE_TYPE)
    return [_ka_torch.empty(s, dtype=_KA_DTYPE[d], device=where) for s, d in _KA_CALLED[called][0]["gives"]]


def _ka_compiled(self, args, kwargs):
    if not _KA_COMPILES:
        raise RuntimeError(_KA_WHY_NOT)
    call = _KA_CALLS[0] | {"held": []}  # what is held is looked at in the operator, where values are known
    if other := _ka_misfit(call, args, kwargs):
        raise ValueError(f"ModelNew was verified {other}: {_KA_NO_ORIGINAL}.")
    if _ka_torch.is_autocast_enabled(_KA_DEVICE_TYPE):
        raise RuntimeError(f"{_KA_AUTOCAST}: {_KA_NO_ORIGINAL}.")
    leaves = _ka_leaves(_ka_given(call, args, kwargs)[0], [])
    tensors = [leaf for leaf in leaves if isinstance(leaf, _ka_torch.Tensor)]
    if _ka_torch.is_grad_enabled() and _ka_b.any([t.requires_grad for t in tensors]):
        raise RuntimeError("This kernel gives no gradients: call it under torch.no_grad(), or detach its inputs.")
    plain = [leaf for leaf in leaves if isinstance(leaf, _KA_VALUES)]
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


_ka_operator = _ka_registered() if _KA_COMPILES else None
