"""What each pointwise operator of ATen computes, in terms of the few functions that every target has."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, pi, sqrt

from kernel_agent.proposers.templates.values import Operand, Value, apply, lift


def unary(name: str) -> Callable[[Operand], Value]:
    return lambda x: apply(name, x)


def binary(name: str) -> Callable[[Operand, Operand], Value]:
    return lambda x, y: apply(name, x, y)


exp, tanh, erf, sigmoid = unary("exp"), unary("tanh"), unary("erf"), unary("sigmoid")
maximum, minimum, gt = binary("max"), binary("min"), binary("gt")


def where(condition: Operand, x: Operand, y: Operand) -> Value:
    return apply("where", condition, x, y)


def relu(x: Value) -> Value:
    return maximum(x, 0)


def clamp(x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    floored = x if low is None else maximum(x, low)
    return floored if high is None else minimum(floored, high)


def gelu(x: Value, approximate: str = "none") -> Value:
    if approximate == "tanh":
        return x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))
    return x * 0.5 * (1 + erf(x * sqrt(0.5)))


def elu(x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    return where(gt(x, 0), x * scale, apply("expm1", x * input_scale) * (alpha * scale))


def softplus(x: Value, beta: float = 1, threshold: float = 20) -> Value:
    scaled = x * beta
    return where(gt(scaled, threshold), x, apply("log1p", exp(scaled)) / beta)


def mish(x: Value) -> Value:
    """x * tanh(log(1 + e)) with e = exp(x): the tanh is n / (n + 2) with n = e * (e + 2), one in float32 from 20 on."""
    e = exp(minimum(x, 20))
    n = e * (e + 2)
    return x * (n / (n + 2))


def div(x: Operand, y: Operand, rounding_mode: str | None = None) -> Value:
    quotient = lift(x) / y
    return apply(rounding_mode, quotient) if rounding_mode else quotient


def power(x: Operand, y: Operand) -> Value:
    base = lift(x)
    special: dict[float, Callable[[], Value]] = {
        1.0: lambda: base,
        2.0: lambda: base * base,
        3.0: lambda: base * base * base,
        4.0: lambda: (base * base) * (base * base),
        0.5: lambda: apply("sqrt", base),
        -0.5: lambda: apply("rsqrt", base),
        -1.0: lambda: 1 / base,
        -2.0: lambda: 1 / (base * base),
    }
    if not isinstance(y, Value) and float(y) in special:
        return special[float(y)]()
    return apply("pow", base, y)


def truth(x: Operand) -> Value:
    return apply("ne", x, 0)


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946  # torch.nn.SELU's


POINTWISE: dict[str, Callable[..., Value]] = {
    **{
        name: unary(name)
        for name in [
            "neg",
            "abs",
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sqrt",
            "rsqrt",
            "tanh",
            "sigmoid",
            "erf",
        ]
    },
    **{
        name: unary(name)
        for name in [
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "floor",
            "ceil",
            "round",
            "trunc",
            "sign",
        ]
    },
    **{name: binary(name) for name in ["eq", "ne", "lt", "le", "gt", "ge", "fmod", "atan2", "copysign"]},
    "maximum": maximum,
    "minimum": minimum,
    "max": maximum,
    "min": minimum,
    "add": lambda x, y, alpha=1: lift(x) + lift(y) * alpha,
    "sub": lambda x, y, alpha=1: lift(x) - lift(y) * alpha,
    "rsub": lambda x, y, alpha=1: lift(y) - lift(x) * alpha,
    "mul": lambda x, y: lift(x) * y,
    "div": div,
    "true_divide": div,
    "divide": div,
    "multiply": lambda x, y: lift(x) * y,
    "subtract": lambda x, y, alpha=1: lift(x) - lift(y) * alpha,
    "floor_divide": lambda x, y: apply("floor", lift(x) / y),
    "remainder": lambda x, y: apply("remainder", x, y),
    "reciprocal": lambda x: 1 / x,
    "square": lambda x: x * x,
    "pow": power,
    "sgn": unary("sign"),
    "frac": lambda x: x - apply("trunc", x),
    "relu": relu,
    "relu6": lambda x: clamp(x, 0, 6),
    "clamp": clamp,
    "clamp_min": lambda x, low: clamp(x, low),
    "clamp_max": lambda x, high: clamp(x, None, high),
    "hardtanh": lambda x, low=-1, high=1: clamp(x, low, high),
    "leaky_relu": lambda x, slope=0.01: where(gt(x, 0), x, x * slope),
    "elu": elu,
    "celu": lambda x, alpha=1: elu(x, alpha, 1, 1 / alpha),
    "selu": lambda x: elu(x, SELU_ALPHA, SELU_SCALE),
    "silu": lambda x: x / (1 + exp(-x)),
    "gelu": gelu,
    "mish": mish,
    "hardswish": lambda x: x * clamp(x + 3, 0, 6) / 6,
    "hardsigmoid": lambda x: clamp(x + 3, 0, 6) / 6,
    "softplus": softplus,
    "log_sigmoid": lambda x: minimum(x, 0) - apply("log1p", exp(-apply("abs", x))),
    "threshold": lambda x, threshold, value: where(apply("le", x, threshold), value, x),
    "softshrink": lambda x, bound=0.5: where(gt(x, bound), x - bound, where(apply("lt", x, -bound), x + bound, x * 0)),
    "hardshrink": lambda x, bound=0.5: where(apply("le", apply("abs", x), bound), 0, x),
    "where": where,
    "masked_fill": lambda x, mask, value: where(mask, value, x),
    "lerp": lambda x, y, weight: x + weight * (y - x),
    "addcmul": lambda x, a, b, value=1: x + a * b * value,
    "addcdiv": lambda x, a, b, value=1: x + a / b * value,
    "isnan": lambda x: apply("ne", x, x),
    "isinf": lambda x: apply("eq", apply("abs", x), inf),
    "logical_not": lambda x: apply("eq", x, 0),
    "bitwise_not": lambda x: apply("eq", x, 0),
    "logical_and": lambda x, y: truth(x) * truth(y),
    "bitwise_and": lambda x, y: truth(x) * truth(y),
    "__and__": lambda x, y: truth(x) * truth(y),
    "__or__": lambda x, y: truth(truth(x) + truth(y)),
    "logical_or": lambda x, y: truth(truth(x) + truth(y)),
    "bitwise_or": lambda x, y: truth(truth(x) + truth(y)),
}
