/* A double of libcublas over the double of the driver: a product is a launch of the kernel "gemm", so that it is captured, timed and
 * computed as the test's kernels are. Written from cuBLAS' documentation. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, ARCH_MISMATCH = 8, EXECUTION_FAILED = 13 };
typedef struct { char name[64]; const void *image; int shared, wide_clusters; } Function;
typedef struct { uint32_t grid[3], block[3], shared; void *stream; void *attributes; uint32_t count; } Configuration;
typedef struct { void *stream, *workspace; } Handle;
typedef struct { const void *a, *b; void *c; int m, n, k; } Product;

int handles;
static Function gemm = {.name = "gemm"};

int cublasGetProperty(int which, int *value) { *value = which == 0 ? 13 : which == 1 ? 1 : 0; return which < 3 ? SUCCESS : INVALID_VALUE; }
int cublasCreate_v2(Handle **handle) { *handle = calloc(1, sizeof **handle); handles++; return SUCCESS; }
int cublasDestroy_v2(Handle *handle) { free(handle); handles--; return SUCCESS; }
int cublasSetStream_v2(Handle *handle, void *stream) { handle->stream = stream; handle->workspace = NULL; return SUCCESS; } /* as documented */
int cublasSetWorkspace_v2(Handle *handle, void *place, size_t size) {
    if (!place || (uintptr_t)place % 256 || !size) return INVALID_VALUE;
    handle->workspace = place;
    return SUCCESS;
}
int cublasGemmEx(Handle *handle, int transposed_a, int transposed_b, int m, int n, int k, const float *alpha, const void *a, int a_type,
                 int lda, const void *b, int b_type, int ldb, const float *beta, void *c, int c_type, int ldc, int sums, int algorithm) {
    if (!handle->stream || !handle->workspace) return NOT_INITIALIZED;
    if (transposed_a || transposed_b || *alpha != 1 || *beta != 0 || lda != m || ldb != k || ldc != m || sums != 68 || algorithm != -1) return INVALID_VALUE;
    if (a_type != b_type || a_type != c_type || (a_type != 14 && a_type != 2)) return ARCH_MISMATCH;
    int (*launch)(const Configuration *, Function *, void **, void **) = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuLaunchKernelEx");
    Product *product = malloc(sizeof *product); /* a graph may hold it: it is never given back */
    *product = (Product){a, b, c, m, n, k};
    void **parameters = malloc(6 * sizeof *parameters);
    parameters[0] = &product->a, parameters[1] = &product->b, parameters[2] = &product->c;
    parameters[3] = &product->m, parameters[4] = &product->n, parameters[5] = &product->k;
    Configuration asked = {.grid = {1, 1, 1}, .block = {128, 1, 1}, .stream = handle->stream};
    return launch(&asked, &gemm, parameters, NULL) ? EXECUTION_FAILED : SUCCESS;
}
