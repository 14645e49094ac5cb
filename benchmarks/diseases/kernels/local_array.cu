__global__ void counts(const float* x, float* out, int n) {
  int column = blockIdx.x * 256 + threadIdx.x;
  float bins[64] = {};
  for (int row = 0; row < n; ++row) {
    int bin = static_cast<int>(x[row * (gridDim.x * 256L) + column] * 64) & 63;
    bins[bin] += 1;  // here
  }
  float most = 0;
  for (int bin = 0; bin < 64; ++bin) most = fmaxf(most, bins[bin]);
  out[column] = most;
}

void run(Tensor x, Tensor out) {
  counts<<<x.size(1) / 256, 256, 0, stream(out)>>>(data<const float>(x), data<float>(out), x.size(0));
}
