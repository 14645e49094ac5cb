__global__ void rows(const float* x, float* out) {
  __shared__ float tile[8 * 1024];
  float* mine = tile + threadIdx.x / 32 * 1024;
  int lane = threadIdx.x % 32;
  long base = (blockIdx.x * 8L + threadIdx.x / 32) * 1024;
  for (int k = 0; k < 32; ++k) mine[k * 32 + lane] = x[base + k * 32 + lane];
  __syncwarp();
  float sum = 0;
  #pragma unroll 1
  for (int k = 0; k < 32; ++k)
    sum += mine[lane * 32 + k];  // here
  out[base / 32 + lane] = sum;
}

void run(Tensor x, Tensor out) {
  rows<<<x.size(0) / 8, 256, 0, stream(out)>>>(data<const float>(x), data<float>(out));
}
