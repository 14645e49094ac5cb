template <int part>
__device__ __forceinline__ void stretch(float (&v)[4]) {
  #pragma unroll
  for (int k = 0; k < 320; ++k)
    for (int u = 0; u < 4; ++u) v[u] = fmaf(v[u], 0.5f, (part * 1280 + k * 4 + u) * 0.001f);  // here
}

__global__ void program(const float* x, float* out, int turns) {
  int i = blockIdx.x * 256 + threadIdx.x;
  float v[4] = {x[i], 1, 2, 3};
  #pragma unroll 1
  for (int turn = 0; turn < turns; ++turn)
    switch ((threadIdx.x / 32 + turn) % 8) {
      case 0: stretch<0>(v); break;
      case 1: stretch<1>(v); break;
      case 2: stretch<2>(v); break;
      case 3: stretch<3>(v); break;
      case 4: stretch<4>(v); break;
      case 5: stretch<5>(v); break;
      case 6: stretch<6>(v); break;
      default: stretch<7>(v);
    }
  out[i] = v[0] + v[1] + v[2] + v[3];
}

void run(Tensor x, Tensor out) {
  program<<<x.numel() / 256, 256, 0, stream(out)>>>(data<const float>(x), data<float>(out), 64);
}
