__global__ void biased(const float* x, const float* y, float* out, int plane, int channels, int width) {
  int i = blockIdx.x * 256 + threadIdx.x;
  float bias = y[i / plane % channels] + y[i % width];  // here
  out[i] = x[i] + bias;
}

void run(Tensor x, Tensor y, Tensor out) {
  biased<<<x.numel() / 256, 256, 0, stream(out)>>>(
      data<const float>(x), data<const float>(y), data<float>(out), x.size(2) * x.size(3), x.size(1), x.size(3));
}
