// Stands in for libcuda.so.1 where there is no GPU: whatever Triton loads is taken, and launches are only counted.
#include <stddef.h>

int launched = 0;

int cuCtxGetCurrent(void **context) { *context = &launched; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuCtxGetLimit(size_t *value, int limit) { *value = 1 << 20; return 0; }
int cuCtxSetLimit(int limit, size_t value) { return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 1 << 17; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return cuCtxGetCurrent(context); }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuFuncGetAttribute(int *value, int attribute, void *function) { *value = 1024; return 0; }
int cuFuncSetAttribute(void *function, int attribute, int value) { return 0; }
int cuFuncSetCacheConfig(void *function, int config) { return 0; }
int cuGetErrorString(int error, const char **text) { *text = "no GPU"; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = &launched; return 0; }
int cuModuleLoadData(void **module, const void *image) { *module = &launched; return 0; }
int cuModuleUnload(void *module) { return 0; }
int cuPointerGetAttribute(void *data, int attribute, size_t pointer) { *(size_t *)data = pointer; return 0; }
int cuStreamIsCapturing(void *stream, int *status) { *status = 0; return 0; }
int cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra) { ++launched; return 0; }
