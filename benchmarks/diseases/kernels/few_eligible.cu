__global__ void walk(const int* next, int* out) {
  int i = blockIdx.x * 256 + threadIdx.x, at = i >> 5;
  #pragma unroll 1
  for (int hop = 0; hop < 256; ++hop)
    at = next[at];  // here
  out[i] = at;
}

void run(Tensor x, Tensor out) {
  walk<<<out.numel() / 256, 256, 0, stream(out)>>>(data<const int>(x), data<int>(out));
}
