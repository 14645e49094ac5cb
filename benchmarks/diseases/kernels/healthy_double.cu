__global__ void polynomial(const double* x, double* out) {
  long i = blockIdx.x * 256L + threadIdx.x;
  double v = x[i], p = 1, q = 2, r = 3, s = 4;
  #pragma unroll 8
  for (int k = 0; k < 64; ++k) {
    p = p * v + 0.1;
    q = q * v + 0.2;
    r = r * v + 0.3;
    s = s * v + 0.4;
  }
  out[i] = p + q + r + s;
}

void run(Tensor x, Tensor out) {
  polynomial<<<x.numel() / 256, 256, 0, stream(out)>>>(data<const double>(x), data<double>(out));
}
