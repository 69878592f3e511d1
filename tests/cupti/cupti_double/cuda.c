/* A double of libcuda.so.1 for a machine without a GPU: as much of the driver (and of the CUDA runtime, as if linked into it) as a small
 * program needs to be traced. Of what kernels compute only this is done: "tensor" (gpu/tensor_kernels.py) takes 100 ns a trip, and adds its
 * threads to the second number that it is given. cuInit loads the injected library just as the driver does. A kernel takes as many microseconds as its grid
 * is wide, a copy one microsecond a kilobyte; each stream does one thing after another, in real time, without anybody working. What
 * happens is told to the double of libcupti where that is loaded, and kept for `cuda_double_operations`. Unlike `libcuda_double.c`,
 * which computes and whose time stands still, this one only takes time.
 *
 * CUDA_DOUBLE_DRIVER  what cuDriverGetVersion answers (13010)
 * CUDA_DOUBLE_INIT    what cuInit answers (0)
 * CUDA_DOUBLE_DEVICES how many devices there are (1) */
#define _GNU_SOURCE
#include "double.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STREAMS = 64, OPERATIONS = 1 << 20, NOT_READY_YET = 3, NO_DEVICE = 100, BAD_DEVICE = 101, BAD_CONTEXT = 201 };
enum { COPY = 1, SET = 2, KERNEL = 10, PAGES = 25, GRAPH = 51 };
typedef struct { uint32_t kind, stream; uint64_t start, end, bytes; } Operation;
typedef struct { char name[120]; } Function;

static struct { Operation *list; uint32_t count; uint64_t free_from[STREAMS]; } device;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int initialised, ready, streams;
static char places[16][8]; /* of contexts: of a device the first, then those that are made while it lives */
static int taken[16];
static void *context = places[0]; /* the last that was made */
static __thread void *current;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
static void wait_until(uint64_t end) {
    for (uint64_t at = now(); at < end; at = now())
        nanosleep(&(struct timespec){(time_t)((end - at) / 1000000000u), (long)((end - at) % 1000000000u)}, NULL);
}

/* A function of the double of libcupti, if that is the libcupti of this process. */
static void *told(const char *name) {
    static void *library;
    if (!library) library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}
#define TELL(name, ...) do { __typeof__(&name) tell = (__typeof__(&name))told(#name); if (tell) tell(__VA_ARGS__); } while (0)
#define ENTER(domain, id, parameters) \
    __typeof__(&cupti_double_enter) enter = (__typeof__(&cupti_double_enter))told("cupti_double_enter"); \
    uint32_t correlation = enter ? enter(domain, id, __func__, parameters) : 0
#define LEAVE(domain, id, parameters, result) \
    do { TELL(cupti_double_exit, domain, id, __func__, parameters, correlation, result); return result; } while (0)

static void inject(void) {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path && *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    if (path && *path && !library) fprintf(stderr, "the injected library can't be loaded: %s\n", dlerror());
    if (initialize) initialize();
}

/* Queues an operation on a stream and returns when it runs; `end` becomes when it has run. */
static uint64_t queue(uint32_t kind, uint32_t stream, uint64_t takes, uint64_t bytes, uint64_t *end) {
    pthread_mutex_lock(&lock);
    uint64_t *from = &device.free_from[stream % STREAMS], at = now(), start = at > *from ? at : *from;
    *from = *end = start + takes;
    if (!device.list) device.list = calloc(OPERATIONS, sizeof *device.list);
    if (device.list && device.count < OPERATIONS) device.list[device.count++] = (Operation){kind, stream, start, *end, bytes};
    pthread_mutex_unlock(&lock);
    return start;
}
/* What the device did, in the order in which it was asked to; the same numbers that a record has. */
uint32_t cuda_double_operations(const Operation **operations) { *operations = device.list; return device.count; }
static uint32_t number(const void *stream) { return stream ? (uint32_t)(uintptr_t)stream : 7; } /* 7: CUPTI's number of the default one */

int cuInit(unsigned flags) {
    const char *code = getenv("CUDA_DOUBLE_INIT");
    (void)flags;
    if (code && atoi(code)) return atoi(code);
    initialised = 1;
    pthread_once(&once, inject);
    ready = 1;
    return 0;
}
int cuda_double_ready(void) { return ready; } /* for the double of libcupti */
int cuDriverGetVersion(int *version) {
    const char *text = getenv("CUDA_DOUBLE_DRIVER");
    *version = text ? atoi(text) : 13010;
    return 0;
}
static int devices(void) { const char *text = getenv("CUDA_DOUBLE_DEVICES"); return text ? atoi(text) : 1; }
int cuDeviceGetCount(int *count) { *count = devices(); return initialised ? 0 : NOT_READY_YET; }
int cuDeviceGet(int *handle, int ordinal) { *handle = ordinal; return ordinal < devices() ? 0 : BAD_DEVICE; }
int cuDeviceGetName(char *name, int size, int handle) { (void)handle; snprintf(name, (size_t)size, "Double of an H200"); return 0; }
int cuDeviceGetUuid(unsigned char *uuid, int handle) { memset(uuid, handle + 1, 16); return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int handle) { return cuDeviceGetUuid(uuid, handle); }
int cuDeviceTotalMem_v2(size_t *bytes, int handle) { (void)handle; *bytes = (size_t)141 << 30; return 0; }
int cuDeviceGetPCIBusId(char *text, int size, int handle) { snprintf(text, (size_t)size, "0000:%02X:00.0", handle + 1); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int handle) {
    (void)handle;
    *value = attribute == 16 ? 132 : attribute == 75 ? 9 : 0; /* SMs, compute capability 9.0 */
    return 0;
}
static int made(void **handle, int ordinal, int place) {
    taken[place] = 1;
    *handle = current = context = places[place];
    TELL(cupti_double_context, 1, (uint32_t)ordinal);
    TELL(cupti_double_context_on, context, (uint32_t)ordinal);
    TELL(cupti_double_resource, 1, context, NULL);
    return 0;
}
int cuCtxCreate_v2(void **handle, unsigned flags, int ordinal) {
    (void)flags;
    if (!initialised) return NOT_READY_YET;
    return ordinal < 0 || ordinal > 7 ? BAD_DEVICE : made(handle, ordinal, taken[ordinal] ? ordinal + 8 : ordinal);
}
int cuDevicePrimaryCtxRetain(void **handle, int ordinal) { return initialised ? made(handle, ordinal, ordinal) : NOT_READY_YET; }
int cuCtxSetCurrent(void *handle) { current = handle; return 0; }
int cuCtxGetCurrent(void **handle) { *handle = current; return initialised ? 0 : NOT_READY_YET; }
int cuCtxGetDevice(int *handle) { *handle = 0; return current ? 0 : BAD_CONTEXT; }
int cuCtxDestroy_v2(void *handle) {
    TELL(cupti_double_resource, 2, handle, NULL);
    for (int place = 0; place < 16; place++) if (handle == places[place]) taken[place] = 0;
    current = NULL;
    return 0;
}
int cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    *stream = (void *)(uintptr_t)(20 + (unsigned)__sync_fetch_and_add(&streams, 1));
    TELL(cupti_double_resource, 3, context, *stream);
    return 0;
}
static void *here(void) { return current ? current : context; }
/* Bytes of an ELF file, of which either table of headers comes last; 0 of what is none. */
static size_t size_of(const char *code) {
    uint64_t tables[2];
    uint16_t sizes[4]; /* of an entry, and how many: of programs, then of sections */
    if (memcmp(code, "\177ELF", 4)) return 0;
    memcpy(tables, code + 32, sizeof tables), memcpy(sizes, code + 54, sizeof sizes);
    size_t programs = tables[0] + (size_t)sizes[0] * sizes[1], sections = tables[1] + (size_t)sizes[2] * sizes[3];
    return programs > sections ? programs : sections;
}
int cuModuleLoadData(void **module, const void *code) {
    *module = (void *)code;
    if (code && size_of(code)) TELL(cupti_double_module, 6, here(), code, size_of(code));
    return code ? 0 : 1;
}
int cuModuleUnload(void *module) {
    if (module && size_of(module)) TELL(cupti_double_module, 7, here(), module, size_of(module));
    return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    Function *made = calloc(1, sizeof *made); /* lives as long as the process, as its name may be asked for until then */
    (void)module;
    if (!made) return 2;
    snprintf(made->name, sizeof made->name, "%s", name);
    *function = made;
    return 0;
}
int cuMemAlloc_v2(void **address, size_t bytes) { *address = calloc(1, bytes); return *address ? 0 : 2; }
int cuMemFree_v2(void *address) { free(address); return 0; }

int cuLaunchKernel(Function *function, unsigned grid, unsigned grid_y, unsigned grid_z, unsigned block, unsigned block_y, unsigned block_z,
                   unsigned shared, void *stream, void **parameters, void **extra) {
    (void)grid_y, (void)grid_z, (void)block_y, (void)block_z, (void)shared, (void)extra;
    uint64_t end, takes = grid * 1000ull;
    if (!strcmp(function->name, "tensor")) {
        takes = 100ull * *(uint32_t *)parameters[1];
        (*(uint32_t **)parameters[0])[1] += grid * block;
    }
    TELL(cupti_double_launching, function->name, here());
    ENTER(DRIVER_API, 307, NULL);
    uint64_t start = queue(KERNEL, number(stream), takes, 0, &end);
    TELL(cupti_double_kernel, function->name, correlation, number(stream), start, end, grid, block);
    TELL(cupti_double_count, grid);
    TELL(cupti_double_pc_launch, function->name, here());
    TELL(cupti_double_sass_launch, function->name, here(), grid);
    TELL(cupti_double_exit, DRIVER_API, 307, __func__, NULL, correlation, 0);
    TELL(cupti_double_launching, NULL, NULL);
    return 0;
}
typedef struct { void *function; unsigned grid[3], block[3], shared; void *stream, **parameters; } Launch; /* CUDA_LAUNCH_PARAMS */
int cuLaunchCooperativeKernelMultiDevice(Launch *list, unsigned count, unsigned flags) {
    (void)flags;
    for (unsigned n = 0; n < count; n++) {
        uint64_t end;
        Function *function = list[n].function;
        TELL(cupti_double_launching, function->name, here());
        ENTER(DRIVER_API, 480, NULL);
        uint64_t start = queue(KERNEL, number(list[n].stream), list[n].grid[0] * 1000ull, 0, &end);
        TELL(cupti_double_kernel, function->name, correlation, number(list[n].stream), start, end, list[n].grid[0], list[n].block[0]);
        TELL(cupti_double_count, list[n].grid[0]);
        TELL(cupti_double_exit, DRIVER_API, 480, __func__, NULL, correlation, 0);
        TELL(cupti_double_launching, NULL, NULL);
    }
    return 0;
}
static int copy(uint8_t kind, void *to, const void *from, size_t bytes, uint32_t correlation) {
    uint64_t end, start = queue(COPY, 7, bytes, bytes, &end);
    memcpy(to, from, bytes);
    TELL(cupti_double_memcpy, kind, bytes, correlation, 7, start, end);
    wait_until(end);
    return 0;
}
int cuMemcpyHtoD_v2(void *to, const void *from, size_t bytes) {
    ENTER(DRIVER_API, 276, NULL);
    int result = copy(1, to, from, bytes, correlation);
    LEAVE(DRIVER_API, 276, NULL, result);
}
int cuMemcpyDtoH_v2(void *to, const void *from, size_t bytes) {
    ENTER(DRIVER_API, 278, NULL);
    int result = copy(2, to, from, bytes, correlation);
    LEAVE(DRIVER_API, 278, NULL, result);
}
/* Unified memory of the host that is wanted on a device moves there. */
int cuMemPrefetchAsync(const void *from, size_t bytes, int device, void *stream) {
    uint64_t end;
    (void)from;
    ENTER(DRIVER_API, 467, NULL);
    uint64_t start = queue(PAGES, number(stream), bytes, bytes, &end);
    TELL(cupti_double_pages, 1, bytes, UINT32_MAX, (uint32_t)device, start, end);
    LEAVE(DRIVER_API, 467, NULL, 0);
}
int cuMemsetD8_v2(void *to, unsigned char value, size_t bytes) {
    uint64_t end;
    ENTER(DRIVER_API, 249, NULL);
    uint64_t start = queue(SET, 7, bytes, bytes, &end);
    memset(to, value, bytes);
    TELL(cupti_double_memset, bytes, correlation, 7, start, end);
    LEAVE(DRIVER_API, 249, NULL, 0);
}
/* As CUPTI 13.0 does on an H200: a graph that was made while graphs weren't to be recorded as a whole crashes the program once they are, and so
 * does one that was launched under CUPTI once cuptiFinalize has taken it away. (In how many programs it did, and when not: see
 * gpu/check_cupti_attach.) A graph is its number, and made when it is launched at the latest. */
enum { GRAPHS = 64, AS_KERNELS = 1, AS_A_WHOLE };
static char graphs_made[GRAPHS];
static void graph_made(void *graph, int whole) {
    char *how = &graphs_made[(uintptr_t)graph % GRAPHS];
    if (!*how) *how = whole ? AS_A_WHOLE : AS_KERNELS;
}
static void crash_where_cupti_does(void *graph) {
    int whole = 0, gone = 0;
    TELL(cupti_double_graphs_now, &whole, &gone);
    graph_made(graph, whole);
    if (gone || (graphs_made[(uintptr_t)graph % GRAPHS] == AS_KERNELS && whole)) abort();
}
int cuGraphInstantiateWithFlags(void **ready, void *graph, unsigned long long flags) {
    int whole = 0, gone = 0;
    (void)flags;
    TELL(cupti_double_graphs_now, &whole, &gone);
    graph_made(*ready = graph, whole);
    TELL(cupti_double_resource, 18, here(), NULL);
    return 0;
}
int cuGraphLaunch(void *graph, void *stream) {
    uint64_t end;
    crash_where_cupti_does(graph);
    TELL(cupti_double_launching, NULL, here());
    ENTER(DRIVER_API, 514, NULL);
    uint64_t start = queue(GRAPH, number(stream), 100000, 0, &end);
    TELL(cupti_double_graph, (uint32_t)(uintptr_t)graph, correlation, number(stream), start, end);
    TELL(cupti_double_count, 100);
    TELL(cupti_double_exit, DRIVER_API, 514, __func__, NULL, correlation, 0);
    TELL(cupti_double_launching, NULL, NULL);
    return 0;
}
int cuStreamSynchronize(void *stream) {
    ENTER(DRIVER_API, 126, NULL);
    uint64_t start = now();
    wait_until(device.free_from[number(stream) % STREAMS]);
    TELL(cupti_double_synchronization, 3, correlation, number(stream), start, now());
    TELL(cupti_double_synchronized, 1, context, stream);
    LEAVE(DRIVER_API, 126, NULL, 0);
}
int cuCtxSynchronize(void) {
    ENTER(DRIVER_API, 17, NULL);
    uint64_t start = now();
    for (int stream = 0; stream < STREAMS; stream++) wait_until(device.free_from[stream]);
    TELL(cupti_double_synchronization, 4, correlation, 0, start, now());
    TELL(cupti_double_synchronized, 2, context, NULL);
    LEAVE(DRIVER_API, 17, NULL, 0);
}

/* The CUDA runtime: a call of it begins CUDA where nobody has, and calls the driver. */
static int begin(void) {
    void *handle;
    if (!current && initialised && taken[(char (*)[8])context - places]) current = context; /* another thread has begun */
    return initialised && current ? 0 : cuInit(0) || cuCtxCreate_v2(&handle, 0, 0);
}
int cudaLaunchKernel(Function *function, unsigned grid, unsigned block, void *stream) {
    if (begin()) return NO_DEVICE;
    ENTER(RUNTIME_API, 211, NULL);
    int result = cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, NULL, NULL);
    LEAVE(RUNTIME_API, 211, NULL, result);
}
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    if (begin()) return NO_DEVICE;
    ENTER(RUNTIME_API, 31, NULL);
    int result = kind == 1 ? cuMemcpyHtoD_v2(to, from, bytes) : cuMemcpyDtoH_v2(to, from, bytes);
    LEAVE(RUNTIME_API, 31, NULL, result);
}
int cudaDeviceSynchronize(void) {
    if (begin()) return NO_DEVICE;
    ENTER(RUNTIME_API, 165, NULL);
    int result = cuCtxSynchronize();
    LEAVE(RUNTIME_API, 165, NULL, result);
}
