/* ---
id: kernels/convolution/level_01
title: A 3 x 3 convolution by Winograd's F(2 x 2, 3 x 3), blocks of tiles in the cache
archs: [cpu]
families: [conv]
bottlenecks: [compute]
languages: [cpp]
--- */
// One idea: fewer products. Four neighbouring results of a 3 x 3 convolution come of 16 products instead of 36 (Lavin and Gray,
// arXiv 1509.09308): tiles of 4 x 4 inputs and the weights are each transformed by additions, multiplied element by element and summed
// over the channels, and transformed back. For each of the 16 places that sum is a matrix product; a block of tiles goes through all of
// it in the cache, and its products keep 8 channels by 48 tiles in registers.
// Compile with -O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

#include <omp.h>

#include <tvm/ffi/container/tensor.h>

namespace {

//@begin shape
constexpr int64_t BATCH = 2, IN = 64, OUT = 128, HEIGHT = 64, WIDTH = 64, PAD = 0;
constexpr bool BIAS = true;
//@end shape

#if defined(__AVX512F__)
constexpr int64_t LANES = 16, CHANNELS = 8;  // of results in registers: 8 channels of 3 vectors
#else
constexpr int64_t LANES = 8, CHANNELS = 4;
#endif
typedef float k_lanes __attribute__((vector_size(LANES * 4)));
constexpr int64_t TILES = 3 * LANES, PLACES = 16;
constexpr int64_t ROWS = HEIGHT + 2 * PAD - 2, COLUMNS = WIDTH + 2 * PAD - 2;
constexpr int64_t DOWN = (ROWS + 1) / 2, ALONG = (COLUMNS + 1) / 2, EVERY = DOWN * ALONG;
constexpr int64_t TALL = 2 * DOWN + 2, WIDE = (2 * ALONG + 2 + 15) / 16 * 16;
constexpr int64_t GROUPS = (OUT + CHANNELS - 1) / CHANNELS;
constexpr int64_t BLOCKS = (EVERY + TILES - 1) / TILES;
constexpr int64_t TOGETHER = 4;  // groups of channels between two transforms back

struct Floats {
  explicit Floats(int64_t n) : data(new (std::align_val_t(64)) float[n]) {}
  ~Floats() { ::operator delete[](data, std::align_val_t(64)); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* const data;
};

// Weights of a group of channels: G g G^T at each place, laid out [place][input][channel].
void weights(const float* w, float* to, int64_t group) {
  std::memset(to, 0, sizeof(float) * PLACES * IN * CHANNELS);
  for (int64_t c = 0; c < std::min(CHANNELS, OUT - group * CHANNELS); ++c)
    for (int64_t i = 0; i < IN; ++i) {
      const float* g = w + ((group * CHANNELS + c) * IN + i) * 9;
      float half[4][3];
      for (int64_t x = 0; x < 3; ++x) {
        half[0][x] = g[x];
        half[1][x] = 0.5f * (g[x] + g[3 + x] + g[6 + x]);
        half[2][x] = 0.5f * (g[x] - g[3 + x] + g[6 + x]);
        half[3][x] = g[6 + x];
      }
      for (int64_t y = 0; y < 4; ++y) {
        const float* h = half[y];
        const float all[4] = {h[0], 0.5f * (h[0] + h[1] + h[2]), 0.5f * (h[0] - h[1] + h[2]), h[2]};
        for (int64_t x = 0; x < 4; ++x) to[((y * 4 + x) * IN + i) * CHANNELS + c] = all[x];
      }
    }
}

// Inputs of tiles in one row of them: B^T d B at each place, laid out [place][input][tile].
void inputs(const float* __restrict__ x, float* __restrict__ to, int64_t n) {
  constexpr int64_t P = IN * TILES;
  #pragma omp simd
  for (int64_t t = 0; t < n; ++t) {
    float d[4][4], e[4][4];
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 4; ++j) d[i][j] = x[i * WIDE + 2 * t + j];
    for (int64_t j = 0; j < 4; ++j) {
      e[0][j] = d[0][j] - d[2][j];
      e[1][j] = d[1][j] + d[2][j];
      e[2][j] = d[2][j] - d[1][j];
      e[3][j] = d[1][j] - d[3][j];
    }
    for (int64_t i = 0; i < 4; ++i) {
      to[(i * 4 + 0) * P + t] = e[i][0] - e[i][2];
      to[(i * 4 + 1) * P + t] = e[i][1] + e[i][2];
      to[(i * 4 + 2) * P + t] = e[i][2] - e[i][1];
      to[(i * 4 + 3) * P + t] = e[i][1] - e[i][3];
    }
  }
}

// Sums over the inputs at one place: CHANNELS rows of TILES.
inline void product(const float* __restrict__ u, const float* __restrict__ v, float* __restrict__ m) {
  k_lanes sum[CHANNELS][3] = {};
  for (int64_t i = 0; i < IN; ++i) {
    const k_lanes* at = reinterpret_cast<const k_lanes*>(v + i * TILES);
    const k_lanes a = at[0], b = at[1], c = at[2];
    #pragma GCC unroll 8
    for (int64_t k = 0; k < CHANNELS; ++k) {
      const float w = u[i * CHANNELS + k];
      sum[k][0] += w * a;
      sum[k][1] += w * b;
      sum[k][2] += w * c;
    }
  }
  #pragma GCC unroll 8
  for (int64_t k = 0; k < CHANNELS; ++k)
    for (int64_t l = 0; l < 3; ++l) reinterpret_cast<k_lanes*>(m + k * TILES)[l] = sum[k][l];
}

// A^T m A of a channel's tiles: two rows of pairs.
void results(const float* __restrict__ m, float bias, float* __restrict__ upper, float* __restrict__ lower) {
  constexpr int64_t P = TOGETHER * CHANNELS * TILES;
  #pragma omp simd
  for (int64_t t = 0; t < TILES; ++t) {
    float e[2][4];
    for (int64_t j = 0; j < 4; ++j) {
      const float a = m[j * P + t], b = m[(4 + j) * P + t], c = m[(8 + j) * P + t], d = m[(12 + j) * P + t];
      e[0][j] = a + b + c;
      e[1][j] = b - c - d;
    }
    upper[2 * t] = e[0][0] + e[0][1] + e[0][2] + bias;
    upper[2 * t + 1] = e[0][1] - e[0][2] - e[0][3] + bias;
    lower[2 * t] = e[1][0] + e[1][1] + e[1][2] + bias;
    lower[2 * t + 1] = e[1][1] - e[1][2] - e[1][3] + bias;
  }
}

// Pieces of a block's tiles that lie in one row: calls f(first tile of the piece in the block, row, column, tiles).
template <class F>
inline void pieces(int64_t block, F f) {
  const int64_t end = std::min(EVERY, (block + 1) * TILES);
  for (int64_t t = block * TILES; t < end;) {
    const int64_t y = t / ALONG, x = t % ALONG, n = std::min(ALONG - x, end - t);
    f(t - block * TILES, y, x, n);
    t += n;
  }
}

void tiles(const float* x, const float* u, const float* bias, float* out, int64_t block, float* v, float* m) {
  pieces(block, [&](int64_t t, int64_t down, int64_t along, int64_t n) {
    for (int64_t i = 0; i < IN; ++i) inputs(x + (i * TALL + 2 * down) * WIDE + 2 * along, v + i * TILES + t, n);
  });
  alignas(64) float upper[2 * TILES], lower[2 * TILES];
  for (int64_t first = 0; first < GROUPS; first += TOGETHER) {
    const int64_t groups = std::min(TOGETHER, GROUPS - first);
    for (int64_t p = 0; p < PLACES; ++p)
      for (int64_t g = 0; g < groups; ++g)
        product(u + ((first + g) * PLACES + p) * IN * CHANNELS, v + p * IN * TILES,
                m + (p * TOGETHER + g) * CHANNELS * TILES);
    for (int64_t k = first * CHANNELS; k < std::min(OUT, (first + groups) * CHANNELS); ++k) {
      results(m + (k - first * CHANNELS) * TILES, BIAS ? bias[k] : 0.0f, upper, lower);
      float* to = out + k * ROWS * COLUMNS;
      pieces(block, [&](int64_t t, int64_t down, int64_t along, int64_t n) {
        const int64_t count = std::min(2 * n, COLUMNS - 2 * along), at = 2 * down * COLUMNS + 2 * along;
        std::memcpy(to + at, upper + 2 * t, count * sizeof(float));
        if (2 * down + 1 < ROWS) std::memcpy(to + at + COLUMNS, lower + 2 * t, count * sizeof(float));
      });
    }
  }
}

// The inputs with zeros around them, up to whole tiles.
void padded(const float* x, float* to) {
  std::memset(to, 0, sizeof(float) * TALL * WIDE);
  for (int64_t y = 0; y < HEIGHT; ++y) std::memcpy(to + (y + PAD) * WIDE + PAD, x + y * WIDTH, WIDTH * sizeof(float));
}

void launch(const float* x, const float* w, const float* bias, float* out) {
  const Floats u(GROUPS * PLACES * IN * CHANNELS), wide(BATCH * IN * TALL * WIDE + LANES * 2);
  #pragma omp parallel
  {
    const Floats v(PLACES * IN * TILES), m(PLACES * TOGETHER * CHANNELS * TILES);
    std::memset(v.data, 0, sizeof(float) * PLACES * IN * TILES);
    #pragma omp for nowait
    for (int64_t g = 0; g < GROUPS; ++g) weights(w, u.data + g * PLACES * IN * CHANNELS, g);
    #pragma omp for
    for (int64_t i = 0; i < BATCH * IN; ++i) padded(x + i * HEIGHT * WIDTH, wide.data + i * TALL * WIDE);
    #pragma omp for
    for (int64_t item = 0; item < BATCH * BLOCKS; ++item) {
      const int64_t n = item / BLOCKS;
      tiles(wide.data + n * IN * TALL * WIDE, u.data, bias, out + n * OUT * ROWS * COLUMNS, item % BLOCKS, v.data, m.data);
    }
  }
}

}  // namespace

//@begin run
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView bias, tvm::ffi::TensorView out) {
  launch(static_cast<const float*>(x.data_ptr()), static_cast<const float*>(w.data_ptr()),
         static_cast<const float*>(bias.data_ptr()), static_cast<float*>(out.data_ptr()));
}
//@end run
