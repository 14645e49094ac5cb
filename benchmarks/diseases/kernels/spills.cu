__global__ void __launch_bounds__(1024) mix(const float* x, float* out, long n, int turns) {
  long t = blockIdx.x * 1024L + threadIdx.x;
  float a[96];
  #pragma unroll
  for (int i = 0; i < 96; ++i) a[i] = x[i * n + t];
  for (int turn = 0; turn < turns; ++turn) {
    #pragma unroll
    for (int i = 0; i < 96; ++i) a[i] = fmaf(a[i], 0.5f, a[(i + 37) % 96]);
  }
  float sum = 0;
  #pragma unroll
  for (int i = 0; i < 96; ++i) sum += a[i];
  out[t] = sum;
}

void run(Tensor x, Tensor out) {
  long n = x.size(1);
  mix<<<n / 1024, 1024, 0, stream(out)>>>(data<const float>(x), data<float>(out), n, 8);
}
