"""Each way to compute a product has a limit of its own, and its worst prediction over outputs and inputs."""

from ncu_server.judge.product_ways import Case, limit_of, way_of
from ncu_server.judge.roofline import limit, way_us
from ncu_server.rules.precision import Precision
from ncu_server.rules.ways import WAYS, Product
from ncu_server.wire.evaluation import Peaks
from ncu_server.worker.answers import Work

BY_NAME = {way.name: way for way in WAYS}
PEAKS = Peaks(copy_gbps=4000, last_cache_bytes=5e7, fp32_tflops=50, tf32_tflops=400, bf16_tflops=800, int8_tflops=1200)
WORK: Work = {
    **{"inputs": [], "outputs": [], "parameters": [], "flops": 1.2e11, "read_bytes": 3e8, "written_bytes": 1e8},
    **{"argument_bytes": 3e7, "narrow": False, "byte_formats": []},
}  # type: ignore[typeddict-item]
OUTPUT: Precision = {
    **{"dtype": "float32", "count": 1 << 20, "unit": 1e-6, "rms": 1e5, "ran": 1.0, "plain": 64.0, "allowed": 64.0},
    **{"most": 1e6, "length": 8192, "narrow": None},
}  # type: ignore[typeddict-item]
PRODUCT: Product = {"terms": 8192, "mixed": 1.0, "operands": [{"rms": 1.0, "largest": 4.0, "peak": 3.0}] * 2}


def case(product: Product, precision: Precision, output: str = "output 0") -> Case:
    return Case(product, precision, output, "hard")


def test_a_way_takes_as_long_as_its_products_and_never_less_than_the_bytes() -> None:
    assert way_us(WORK, PEAKS, {"TF32": 1}) == 300
    assert way_us(WORK, PEAKS, {"bf16": 3}) == 450
    assert way_us(WORK, PEAKS, {"int8": 3}) == 300
    assert way_us(WORK, PEAKS, {"bf16": 1}) == 150
    assert way_us({**WORK, "flops": 1e9}, PEAKS, {"bf16": 1}) == 100
    assert way_us(WORK, PEAKS, {"bf16": 1, "fp8": 2}) is None, "fp8's rate was not measured"


def test_a_way_is_told_by_its_worst_case_and_out_of_range_by_no_number() -> None:
    wide: Precision = {**OUTPUT, "allowed": 1e6}
    found = way_of(BY_NAME["one TF32 product"], [case(PRODUCT, wide, "output 1"), case(PRODUCT, OUTPUT)], 300.0)
    assert found is not None and found.error is not None
    assert (found.fits, found.limit_us, found.products) == ("outside", 300.0, {"TF32": 1})
    assert (found.output, found.inputs) == ("output 0", "hard"), "what allows less of its error decides"
    assert list(found.errors) == ["output 1", "output 0"] and found.errors["output 0"] == found.error
    assert way_of(BY_NAME["one TF32 product"], [case(PRODUCT, wide)], 300.0).fits == "inside"  # type: ignore[union-attr]
    large: Product = {**PRODUCT, "operands": [{"rms": 1e4, "largest": 1e5, "peak": 3.0}] * 2}
    beyond = way_of(BY_NAME["one float16 product"], [case(large, OUTPUT)], None)
    assert beyond is not None and (beyond.error, beyond.fits) == (None, "outside")
    assert way_of(BY_NAME["one float16 product"], [], None) is None


def test_the_limit_is_that_of_the_fastest_way_that_is_exact_enough() -> None:
    wide: Precision = {**OUTPUT, "allowed": 1e6}

    def told(precision: Precision, flops: float) -> tuple[float, str]:
        work: Work = {**WORK, "flops": flops}
        found = [way_of(way, [case(PRODUCT, precision)], way_us(work, PEAKS, way.products)) for way in WAYS]
        bound = limit_of(work, PEAKS, filter(None, found))
        return round(bound.us, 6), bound.rate

    assert told(wide, 1.2e11) == (150, "by one bfloat16 product")
    assert told(OUTPUT, 1.2e11) == (450, "by three bfloat16 products"), "one TF32 product is not exact enough"
    assert told(OUTPUT, 1e9) == (100, "4,000 GB/s of a copy"), "the bytes take longer than the products"
    assert limit_of(WORK, PEAKS, []) == limit(WORK, PEAKS), "nothing is known of ways"
