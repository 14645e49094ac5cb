__global__ void gemm(const float* x, const float* y, float* out, int n) {
  __shared__ float a[16][65], b[16][64];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16, row = blockIdx.y * 64, column = blockIdx.x * 64;
  float sum[4][4] = {};
  for (int k = 0; k < n; k += 16) {
    for (int i = threadIdx.x; i < 1024; i += 256) {
      a[i % 16][i / 16] = x[(row + i / 16) * (long)n + k + i % 16];
      b[i / 64][i % 64] = y[(k + i / 64) * (long)n + column + i % 64];
    }
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < 16; ++j) {
      float p[4], q[4];
      for (int u = 0; u < 4; ++u) { p[u] = a[j][ty * 4 + u]; q[u] = b[j][tx * 4 + u]; }
      for (int u = 0; u < 4; ++u) for (int v = 0; v < 4; ++v) sum[u][v] += p[u] * q[v];
    }
    __syncthreads();
  }
  for (int u = 0; u < 4; ++u) for (int v = 0; v < 4; ++v)
    out[(row + ty * 4 + u) * (long)n + column + tx * 4 + v] = sum[u][v];
}

void run(Tensor x, Tensor y, Tensor out) {
  int n = x.size(0);
  gemm<<<dim3(n / 64, n / 64), 256, 0, stream(out)>>>(data<const float>(x), data<const float>(y), data<float>(out), n);
}
