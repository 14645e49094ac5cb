__global__ void row_sum(const float* x, float* out, int n) {
  __shared__ float part[256];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 256) sum += x[blockIdx.x * (long)n + i];
  part[threadIdx.x] = sum;
  for (int half = 128; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (!threadIdx.x) out[blockIdx.x] = part[0];
}

void run(Tensor x, Tensor out) {
  row_sum<<<x.size(0), 256, 0, stream(out)>>>(data<const float>(x), data<float>(out), x.size(1));
}
