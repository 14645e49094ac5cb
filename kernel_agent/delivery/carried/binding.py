# ---- The kernel's binding: torch's own load_inline, behind the names of tvm_ffi that the kernel uses. ----
import hashlib as _ka_hashlib
import re as _ka_re

with _ka_as_judged:  # it looks for CUDA when it is imported
    from torch.utils.cpp_extension import load_inline as _ka_load_inline

_KA_VIEW = r"""
#include <ATen/dlpack.h>
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

inline bool operator==(const DLDataType& a, const DLDataType& b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}
inline bool operator!=(const DLDataType& a, const DLDataType& b) { return !(a == b); }
namespace tvm { namespace ffi {
using ::operator==;
using ::operator!=;
struct ShapeView {
  const int64_t* at;
  int64_t count;
  int64_t operator[](int64_t i) const { return at[i < 0 ? i + count : i]; }
  int64_t size() const { return count; }
  const int64_t* data() const { return at; }
  const int64_t* begin() const { return at; }
  const int64_t* end() const { return at + count; }
  int64_t Product() const { int64_t n = 1; for (int64_t i = 0; i < count; ++i) n *= at[i]; return n; }
};
struct TensorView {
  void* data;
  int64_t dims;
  const int64_t* extents;
  const int64_t* steps;
  DLDataType type;
  DLDevice place;
  void* data_ptr() const { return data; }
  int64_t dim() const { return dims; }
  int32_t ndim() const { return static_cast<int32_t>(dims); }
  int64_t size(int64_t i) const { return extents[i < 0 ? i + dims : i]; }
  int64_t stride(int64_t i) const { return steps[i < 0 ? i + dims : i]; }
  ShapeView shape() const { return {extents, dims}; }
  ShapeView sizes() const { return {extents, dims}; }
  ShapeView strides() const { return {steps, dims}; }
  int64_t numel() const { return shape().Product(); }
  uint64_t byte_offset() const { return 0; }
  DLDataType dtype() const { return type; }
  DLDevice device() const { return place; }
  bool IsContiguous() const {
    int64_t want = 1;
    for (int64_t i = dims - 1; i >= 0; --i) {
      if (extents[i] != 1 && steps[i] != want) return false;
      want *= extents[i];
    }
    return true;
  }
  bool is_contiguous() const { return IsContiguous(); }
};
struct Failure {
  std::ostringstream words;
  ~Failure() noexcept(false) { throw std::runtime_error(words.str()); }
};
}}  // namespace tvm::ffi

#define TVM_FFI_THROW(Kind) ::tvm::ffi::Failure{}.words << #Kind << ": "
#define TVM_FFI_ICHECK(condition) if (!(condition)) TVM_FFI_THROW(InternalError) << #condition << " "
#define TVM_FFI_CHECK(condition, Kind) if (!(condition)) TVM_FFI_THROW(Kind) << #condition << " "
#define TVM_FFI_ICHECK_EQ(x, y) TVM_FFI_ICHECK((x) == (y))
#define TVM_FFI_ICHECK_NE(x, y) TVM_FFI_ICHECK((x) != (y))
#define TVM_FFI_ICHECK_LT(x, y) TVM_FFI_ICHECK((x) < (y))
#define TVM_FFI_ICHECK_LE(x, y) TVM_FFI_ICHECK((x) <= (y))
#define TVM_FFI_ICHECK_GT(x, y) TVM_FFI_ICHECK((x) > (y))
#define TVM_FFI_ICHECK_GE(x, y) TVM_FFI_ICHECK((x) >= (y))

struct KaValue {
  enum Kind { tensor, integer, real, flag, nothing } kind;
  tvm::ffi::TensorView view;
  int64_t whole;
  double number;
  template <class T> T as() const {
    using Bare = std::decay_t<T>;
    if constexpr (std::is_same_v<Bare, tvm::ffi::TensorView>) {
      if (kind != tensor) throw std::runtime_error("a tensor is expected here");
      return view;
    } else {
      static_assert(std::is_arithmetic_v<Bare>, "a function takes tvm::ffi::TensorView, integers, floats and bool");
      if (kind == tensor) throw std::runtime_error("a number is expected here");
      return kind == real ? static_cast<Bare>(number) : static_cast<Bare>(whole);
    }
  }
};
extern "C" void* ka_stream(int32_t device);
inline void* TVMFFIEnvGetStream(int32_t, int32_t device) { return ka_stream(device); }

template <class Result, class... Taken, std::size_t... At>
KaValue ka_apply(Result (*function)(Taken...), const KaValue* values, std::index_sequence<At...>) {
  KaValue given{};
  given.kind = KaValue::nothing;
  if constexpr (std::is_void_v<Result>) {
    function(values[At].template as<std::decay_t<Taken>>()...);
  } else {
    static_assert(std::is_arithmetic_v<std::decay_t<Result>>, "a function gives nothing, an integer, a float or bool");
    const auto result = function(values[At].template as<std::decay_t<Taken>>()...);
    if constexpr (std::is_floating_point_v<std::decay_t<Result>>) {
      given.kind = KaValue::real;
      given.number = result;
    } else {
      given.kind = std::is_same_v<std::decay_t<Result>, bool> ? KaValue::flag : KaValue::integer;
      given.whole = result;
    }
  }
  return given;
}
template <class Result, class... Taken>
void ka_invoke(Result (*function)(Taken...), const KaValue* values, std::size_t count, KaValue* given) {
  if (count != sizeof...(Taken)) throw std::runtime_error("the number of arguments is wrong");
  *given = ka_apply(function, values, std::index_sequence_for<Taken...>{});
}
"""
_KA_ENTRY = 'extern "C" void ka_call_%s(const KaValue* v, std::size_t n, KaValue* given)'
_KA_EXPORT = _KA_ENTRY + " { ka_invoke(&%s, v, n, given); }\n"
_KA_TAKE = r"""
static KaValue ka_value(pybind11::handle given, std::vector<at::Tensor>& held) {
  KaValue value{};
  if (THPVariable_Check(given.ptr())) {
    held.push_back(THPVariable_Unpack(given.ptr()));
    const at::Tensor& t = held.back();
    static_assert(sizeof(DLDataType) == 4);
    const auto scalar = t.scalar_type();
    const uint8_t bits = static_cast<uint8_t>(t.element_size() * 8);
    const uint8_t code = scalar == at::kBool ? kDLBool : scalar == at::kBFloat16 ? kDLBfloat
        : t.is_complex() ? kDLComplex : t.is_floating_point() ? kDLFloat
        : (scalar == at::kByte || scalar == at::kUInt16 || scalar == at::kUInt32 || scalar == at::kUInt64) ? kDLUInt : kDLInt;
    const DLDevice place{t.is_cuda() ? kDLCUDA : kDLCPU, t.is_cuda() ? static_cast<int32_t>(t.get_device()) : 0};
    value.kind = KaValue::tensor;
    value.view = {t.data_ptr(), t.dim(), t.sizes().data(), t.strides().data(), DLDataType{code, bits, 1}, place};
  } else if (PyFloat_Check(given.ptr())) {
    value.kind = KaValue::real;
    value.number = PyFloat_AsDouble(given.ptr());
  } else {
    value.kind = KaValue::integer;
    value.whole = pybind11::cast<int64_t>(given);
  }
  return value;
}
template <void (*call)(const KaValue*, std::size_t, KaValue*)>
static pybind11::object ka_function(pybind11::args given) {
  std::vector<at::Tensor> held;
  std::vector<KaValue> values;
  held.reserve(given.size());
  values.reserve(given.size());
  for (auto one : given) values.push_back(ka_value(one, held));
  KaValue out{};
  call(values.data(), values.size(), &out);
  if (out.kind == KaValue::real) return pybind11::float_(out.number);
  if (out.kind == KaValue::flag) return pybind11::bool_(out.whole != 0);
  if (out.kind == KaValue::integer) return pybind11::int_(out.whole);
  return pybind11::none();
}
"""
_KA_CUDA_STREAM = """
#include <c10/cuda/CUDAStream.h>
extern "C" void* ka_stream(int32_t device) { return c10::cuda::getCurrentCUDAStream(device).stream(); }
"""
_KA_NO_STREAM = 'extern "C" void* ka_stream(int32_t) { return nullptr; }\n'
_KA_OPERATORS = ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS", "HALF2_OPERATORS")


def _ka_own(sources):
    """Sources without tvm_ffi's and DLPack's headers, for which the text above stands."""
    whole = "\n".join([sources] if isinstance(sources, str) else list(sources or ()))
    return _ka_re.sub(r"^[ \t]*#[ \t]*include[ \t]*[<\"](tvm|dlpack)/.*$", "", whole, flags=_ka_re.MULTILINE)


class _ka_Module:
    """A module that was built, whose functions are found in each of the ways that tvm_ffi's are."""

    def __init__(self, built, names):
        self.__dict__.update({name: getattr(built, name) for name in names})

    def __getitem__(self, name):
        return getattr(self, name)

    def get_function(self, name, query_imports=False):
        return getattr(self, name)


class _ka_tvm_ffi:
    """What the kernel uses of tvm_ffi."""

    class cpp:
        """Its compiler."""

        @staticmethod
        def load_inline(
            name,
            *,
            cpp_sources=None,
            cuda_sources=None,
            functions=None,
            extra_cflags=None,
            extra_cuda_cflags=None,
            extra_ldflags=None,
            extra_include_paths=None,
            **others,
        ):
            """Compile the sources by torch's load_inline; `functions` are called as tvm_ffi's are."""
            names = [functions] if isinstance(functions, str) else list(functions or ())
            exports = "".join(_KA_EXPORT % (one, one) for one in names)
            host, device = _ka_own(cpp_sources), _ka_own(cuda_sources)
            entry = "".join(_KA_ENTRY % one + ";\n" for one in names)
            defines = "".join(f'  m.def("{one}", &ka_function<ka_call_{one}>);\n' for one in names)
            parts = [
                "#include <torch/csrc/autograd/python_variable.h>\n#include <torch/csrc/utils/pybind.h>\n#include <vector>\n",
                _KA_VIEW,
                host,
            ]
            parts += [entry if device else exports, _KA_TAKE, _KA_CUDA_STREAM if device else _KA_NO_STREAM]
            parts.append(f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{defines}}}\n")
            undone = [f"-U__CUDA_NO_{one}__" for one in _KA_OPERATORS]
            text = "\n".join(parts)
            built = _ka_load_inline(
                f"{name}_{_ka_hashlib.sha256((text + device).encode()).hexdigest()[:12]}",
                cpp_sources=text,
                cuda_sources="\n".join(["#include <cuda_runtime.h>", _KA_VIEW, device, exports]) if device else None,
                extra_cflags=["-O2", *(extra_cflags or ())],
                extra_cuda_cflags=["-O2", *undone, *(extra_cuda_cflags or ())],
                extra_ldflags=list(extra_ldflags or ()),
                extra_include_paths=list(extra_include_paths or ()),
                no_implicit_headers=True,
            )
            return _ka_Module(built, names)
