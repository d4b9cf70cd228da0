// A GPU that is emulated on the CPU: the functions of libcuda and libcudart that TVM's CUDA runtime calls.
//
// A "kernel" is a shared library that the emulated nvcc has made. Launches run at once. As on a GPU, the error of a
// kernel is found out later, and stays: from then on every call of this process fails.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, LAUNCH_FAILED = 719, NOT_SUPPORTED = 801 };
enum { MEMORY = 1 << 30, THREADS = 1024 };

static int sticky;
void emulated_trap(void) { sticky = LAUNCH_FAILED; }

typedef struct { void (*run)(void**); void (*emulate)(void (*)(void**), void**, const unsigned*); } Kernel;

// --- libcuda

int cuModuleLoadData(void** module, const void* image) {
  if (sticky) return sticky;
  const Elf64_Ehdr* header = image;
  size_t size = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
  int file = memfd_create("kernel", 0);  // stays open: dlopen tells libraries apart by their paths
  for (size_t done = 0; done < size;) {
    ssize_t count = write(file, (const char*)image + done, size - done);
    if (count <= 0) return OUT_OF_MEMORY;
    done += (size_t)count;
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!*module) fprintf(stderr, "%s\n", dlerror());
  return *module ? 0 : INVALID_VALUE;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
  char symbol[1024];
  snprintf(symbol, sizeof symbol, "%s__run", name);
  Kernel* kernel = malloc(sizeof *kernel);
  *(void**)&kernel->run = dlsym(module, symbol);
  *(void**)&kernel->emulate = dlsym(module, "emulate");
  *function = kernel;
  return sticky ? sticky : kernel->run && kernel->emulate ? 0 : NOT_FOUND;
}

int cuModuleUnload(void* module) { return sticky; }
int cuFuncSetAttribute(void* function, int attribute, int value) { return sticky; }
int cuTensorMapEncodeTiled(void) { return NOT_SUPPORTED; }

int cuLaunchKernelEx(const unsigned* dims, Kernel* kernel, void** arguments, void** extra) {
  if (sticky) return sticky;
  if (dims[3] * dims[4] * dims[5] > THREADS) return INVALID_VALUE;
  kernel->emulate(kernel->run, arguments, dims);
  return 0;
}

int cuGetErrorName(int code, const char** text) { *text = "CUDA_ERROR"; return 0; }
int cuGetErrorString(int code, const char** text) { *text = "emulated error"; return 0; }
int cuDeviceGetName(char* name, int size, int device) { snprintf(name, (size_t)size, "emulated GPU"); return 0; }

// --- libcudart

int cudaGetDeviceCount(int* count) { *count = 1; return sticky; }
int cudaGetDevice(int* device) { *device = 0; return sticky; }
int cudaSetDevice(int device) { return sticky; }
int cudaDriverGetVersion(int* version) { *version = 13000; return 0; }
int cudaGetDeviceProperties(void* properties, int device) { strcpy(properties, "emulated GPU"); return sticky; }

int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 1: *value = THREADS; break;
    case 8: *value = 48 << 10; break;  // shared memory of a block
    case 10: *value = 32; break;       // warp
    case 16: *value = 4; break;        // multiprocessors
    case 38: *value = 1 << 20; break;  // L2
    case 75: *value = 9; break;        // compute capability
    default: *value = 0;
  }
  return sticky;
}

int cudaMalloc(void** memory, size_t size) {
  if (sticky) return sticky;
  *memory = size > MEMORY ? NULL : aligned_alloc(256, (size + 255) / 256 * 256 + 256);
  return *memory ? 0 : OUT_OF_MEMORY;
}
int cudaFree(void* memory) { free(memory); return sticky; }
int cudaMallocHost(void** memory, size_t size) { return cudaMalloc(memory, size); }
int cudaFreeHost(void* memory) { return cudaFree(memory); }
int cudaMemGetInfo(size_t* available, size_t* total) { *available = *total = MEMORY; return sticky; }
int cudaMemcpyAsync(void* to, const void* from, size_t size, int kind, void* stream) {
  if (!sticky) memcpy(to, from, size);
  return sticky;
}
int cudaMemcpyPeerAsync(void* to, int there, const void* from, int here, size_t size, void* stream) {
  return cudaMemcpyAsync(to, from, size, 0, stream);
}
int cudaMemsetAsync(void* memory, int value, size_t size, void* stream) {
  if (!sticky) memset(memory, value, size);
  return sticky;
}

int cudaEventCreate(double** event) { *event = calloc(1, sizeof **event); return sticky; }
int cudaEventDestroy(double* event) { free(event); return sticky; }
int cudaEventSynchronize(double* event) { return sticky; }
int cudaEventRecord(double* event, void* stream) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *event = now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
  return sticky;
}
int cudaEventElapsedTime(float* milliseconds, const double* start, const double* end) {
  *milliseconds = (float)(*end - *start);
  return sticky;
}

int cudaDeviceSynchronize(void) { return sticky; }
int cudaStreamSynchronize(void* stream) { return sticky; }
int cudaStreamCreate(void** stream) { *stream = NULL; return sticky; }
int cudaStreamCreateWithFlags(void** stream, unsigned flags) { return cudaStreamCreate(stream); }
int cudaStreamDestroy(void* stream) { return sticky; }
int cudaStreamWaitEvent(void* stream, void* event, unsigned flags) { return sticky; }
int cudaGetLastError(void) { return sticky; }
int cudaPeekAtLastError(void) { return sticky; }
const char* cudaGetErrorName(int code) { return "cudaError"; }
const char* cudaGetErrorString(int code) { return code == OUT_OF_MEMORY ? "out of memory" : "emulated error"; }

int cudaGraphLaunch(void) { return NOT_SUPPORTED; }
int cudaGraphInstantiate(void) { return NOT_SUPPORTED; }
int cudaGraphDestroy(void) { return NOT_SUPPORTED; }
int cudaGraphExecDestroy(void) { return NOT_SUPPORTED; }
int cudaStreamBeginCapture(void) { return NOT_SUPPORTED; }
int cudaStreamEndCapture(void) { return NOT_SUPPORTED; }
