/* A double of libcuda.so.1 for a machine without a GPU: the part of the CUDA driver API that `ullage.benches` calls, written from
 * NVIDIA's documentation of it. Memory is the host's, a stream is a queue of nothing (all is done at once), time is `state.now`, which
 * passes only while a kernel "runs". A kernel is a function of the test's, called through `state.kernel`. The test scripts faults by
 * the name of the function that is to fail. Everything is looked up by cuGetProcAddress, as cuda-bindings does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
       INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600 };
enum { MOST = 64 };

typedef struct { char name[64]; const void *image; int shared, wide_clusters; } Function;
typedef struct { uint32_t grid[3], block[3], shared, cluster[3]; } Launch;
typedef struct { uint32_t id; uint32_t pad; union { uint32_t cluster[3]; char size[64]; } value; } Attribute;
typedef struct { uint32_t grid[3], block[3], shared; void *stream; Attribute *attributes; uint32_t count; } Configuration;
typedef struct { char function[48]; int code, after, times; } Fault;
typedef struct { uint64_t now; } Event;
typedef struct { Configuration asked; Attribute attributes[4]; Function *function; void **parameters; } Node;
typedef struct { int count; Node *nodes; } Graph;

/* What the test sees and sets, field by field as in `cuda_double.State`. */
struct {
    int devices, version;
    char name[64];
    unsigned char uuid[16];
    int attributes[256];
    uint64_t memory, used;                  /* bytes on the device */
    uint64_t now;                           /* ns */
    int blocks_of_memory, modules, events, hosts, contexts, graphs, resets, launches, replays; /* alive now; of the last three: so far */
    int sticky, stays_sticky, hangs;
    int (*kernel)(const char *name, const Launch *launch, void **parameters, int shared_allowed, int wide_clusters);
    Fault faults[MOST];
} state = {.devices = 0, .version = 13000};

static int entered(const char *function) {
    for (Fault *f = state.faults; f < state.faults + MOST; f++)
        if (!strcmp(f->function, function) && f->times && f->after-- <= 0) { f->times--; return f->code; }
    return SUCCESS;
}
#define ENTER { int fault = entered(__func__); if (fault) return fault; }
/* In a context, which each thread must make its own: after a fatal error every call answers with that error. */
static __thread void *current;
#define IN_CONTEXT { ENTER if (!state.contexts || !current) return INVALID_CONTEXT; if (state.sticky) return state.sticky; }

static void *self;                          /* found while the file is still there: the test deletes it once it is loaded */
__attribute__((constructor)) static void find_self(void) {
    Dl_info here;
    if (dladdr(&state, &here)) self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}
int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    *function = self ? dlsym(self, symbol) : NULL;
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}
int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

/* NVRTC asks for a private table where it finds a driver, and does without when there is none. */
int cuGetExportTable(const void **table, const void *id) { *table = NULL; return NOT_FOUND; }

/* --- errors, devices --- */
int cuGetErrorString(int code, const char **words) {
    *words = code == OUT_OF_MEMORY ? "out of memory" : code == NO_DEVICE ? "no CUDA-capable device is detected"
           : code == 700 ? "an illegal memory access was encountered" : code == NOT_FOUND ? "named symbol not found" : "as scripted";
    return SUCCESS;
}
int cuGetErrorName(int code, const char **name) {
    *name = code == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : code == INVALID_DEVICE ? "CUDA_ERROR_INVALID_DEVICE"
          : code == INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE" : code == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
          : code == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : code == INVALID_HANDLE ? "CUDA_ERROR_INVALID_HANDLE"
          : code == NOT_FOUND ? "CUDA_ERROR_NOT_FOUND" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : code == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
          : code == 715 ? "CUDA_ERROR_ILLEGAL_INSTRUCTION" : code == 719 ? "CUDA_ERROR_LAUNCH_FAILED"
          : code == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : code == 901 ? "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" : code == 999 ? "CUDA_ERROR_UNKNOWN" : NULL;
    return *name ? SUCCESS : INVALID_VALUE;
}
int cuInit(unsigned flags) { ENTER return state.devices ? SUCCESS : NO_DEVICE; }
int cuDriverGetVersion(int *version) { *version = state.version; return SUCCESS; }
int cuDeviceGetCount(int *count) { ENTER *count = state.devices; return SUCCESS; }
int cuDeviceGet(int *device, int index) { ENTER *device = index; return index < state.devices ? SUCCESS : INVALID_DEVICE; }
int cuDeviceGetName(char *name, int size, int device) { ENTER strncpy(name, state.name, size); return SUCCESS; }
int cuDeviceGetUuid(void *uuid, int device) { ENTER memcpy(uuid, state.uuid, 16); return SUCCESS; }
int cuDeviceGetUuid_v2(void *uuid, int device) { return cuDeviceGetUuid(uuid, device); }
int cuDeviceGetPCIBusId(char *id, int size, int device) { ENTER strncpy(id, "0000:1B:00.0", size); return SUCCESS; }
int cuDeviceGetAttribute(int *value, int which, int device) { ENTER *value = which < 256 ? state.attributes[which] : 0; return SUCCESS; }

/* --- contexts, streams --- */
int cuDevicePrimaryCtxRetain(void **context, int device) { ENTER state.contexts++; *context = &state; return SUCCESS; }
int cuDevicePrimaryCtxRelease(int device) { ENTER if (state.contexts) state.contexts--; return SUCCESS; }
int cuDevicePrimaryCtxReset(int device) {
    ENTER
    state.resets++;
    state.contexts = 0;
    if (!state.stays_sticky) state.sticky = 0;
    state.blocks_of_memory = state.modules = state.events = 0;
    state.used = 0;
    return SUCCESS;
}
int cuCtxSetCurrent(void *context) { ENTER current = context; return SUCCESS; }
int cuCtxGetCurrent(void **context) { ENTER *context = state.contexts ? current : NULL; return SUCCESS; }
int cuStreamCreate(void **stream, unsigned flags) { IN_CONTEXT *stream = &state; return SUCCESS; }
int cuStreamDestroy(void *stream) { IN_CONTEXT return SUCCESS; }
int cuStreamQuery(void *stream) { IN_CONTEXT return state.hangs ? NOT_READY : SUCCESS; }
int cuStreamSynchronize(void *stream) { IN_CONTEXT return SUCCESS; }

/* --- memory: a word before each block holds its size --- */
int cuMemGetInfo(size_t *left, size_t *total) { IN_CONTEXT *left = state.memory - state.used; *total = state.memory; return SUCCESS; }
int cuMemAlloc(uint64_t *address, size_t size) {
    IN_CONTEXT
    if (!size) return INVALID_VALUE;
    if (size > state.memory - state.used) return OUT_OF_MEMORY;
    uint64_t *block = aligned_alloc(256, (size + 511) / 256 * 256);
    block[0] = size;
    state.used += size;
    state.blocks_of_memory++;
    *address = (uint64_t)block + 256;
    return SUCCESS;
}
int cuMemFree(uint64_t address) {
    IN_CONTEXT
    state.used -= *(uint64_t *)(address - 256);
    state.blocks_of_memory--;
    free((void *)(address - 256));
    return SUCCESS;
}
int cuMemHostAlloc(void **address, size_t size, unsigned flags) { IN_CONTEXT state.hosts++; *address = malloc(size); return SUCCESS; }
int cuMemFreeHost(void *address) { IN_CONTEXT state.hosts--; free(address); return SUCCESS; }
int cuMemcpyHtoD(uint64_t to, const void *of, size_t size) { IN_CONTEXT memcpy((void *)to, of, size); return SUCCESS; }
int cuMemcpyDtoH(void *to, uint64_t of, size_t size) { IN_CONTEXT memcpy(to, (void *)of, size); return SUCCESS; }
int cuMemcpyHtoDAsync(uint64_t to, const void *of, size_t size, void *stream) { IN_CONTEXT memcpy((void *)to, of, size); return SUCCESS; }
int cuMemcpyDtoHAsync(void *to, uint64_t of, size_t size, void *stream) { IN_CONTEXT memcpy(to, (void *)of, size); return SUCCESS; }
int cuMemcpyDtoDAsync(uint64_t to, uint64_t of, size_t size, void *stream) { IN_CONTEXT memcpy((void *)to, (void *)of, size); return SUCCESS; }
int cuMemsetD8Async(uint64_t at, unsigned char byte, size_t size, void *stream) { IN_CONTEXT memset((void *)at, byte, size); return SUCCESS; }

/* --- tensor maps: of elements of 8 bytes, written as tests read them: address, rank, swizzle in bytes, extents of tensor and box.
 * The documentation asks that the map be aligned to 64 bytes; the one that cuda-bindings hands over is not, and drivers take it. --- */
int cuTensorMapEncodeTiled(uint64_t *map, int type, uint32_t rank, uint64_t address, const uint64_t *shape, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
    IN_CONTEXT
    if (address % 16 || type != 4 || rank < 1 || rank > 5 || interleave || swizzle < 0 || swizzle > 3 || promotion || fill)
        return INVALID_VALUE;
    const uint64_t span = swizzle ? 16u << swizzle : 256 * 8;
    if (box[0] * 8 % 16 || box[0] * 8 > span) return INVALID_VALUE;
    memset(map, 0, 128);
    for (int d = 0; d < 3; d++) map[3 + d] = map[6 + d] = 1;
    uint64_t stride = 8;
    for (uint32_t d = 0; d < rank; d++) {
        if (!shape[d] || shape[d] > 1ull << 32 || !box[d] || box[d] > 256 || steps[d] != 1) return INVALID_VALUE;
        if (d && (strides[d - 1] != stride || stride % 16 || stride >= 1ull << 40)) return INVALID_VALUE; /* without gaps */
        stride *= shape[d];
        if (d < 3) { map[3 + d] = shape[d]; map[6 + d] = box[d]; }
    }
    map[0] = address; map[1] = rank; map[2] = swizzle ? span : 0;
    return SUCCESS;
}

/* --- modules: an image is an ELF file, and holds a kernel when the kernel's name is among its bytes --- */
int cuModuleLoadData(void **module, const void *image) {
    IN_CONTEXT
    if (memcmp(image, ELFMAG, SELFMAG)) return INVALID_IMAGE;
    const Elf64_Ehdr *head = image;
    size_t size = head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
    char *kept = malloc(size + 8);
    memcpy(kept, &size, 8);
    memcpy(kept + 8, image, size);
    state.modules++;
    *module = kept;
    return SUCCESS;
}
int cuModuleUnload(void *module) { IN_CONTEXT state.modules--; free(module); return SUCCESS; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    IN_CONTEXT
    if (!memmem((char *)module + 8, *(size_t *)module, name, strlen(name) + 1)) return NOT_FOUND;
    Function *found = calloc(1, sizeof *found);
    strncpy(found->name, name, sizeof found->name - 1);
    *function = found;
    return SUCCESS;
}
int cuFuncSetAttribute(Function *function, int which, int value) {
    IN_CONTEXT
    if (which == 8) {                       /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
        if (value > state.attributes[97]) return INVALID_VALUE; /* ..._MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
        function->shared = value;
    }
    if (which == 14) function->wide_clusters = value; /* CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED */
    return SUCCESS;
}
static int launched(const Configuration *asked, Function *function, void **parameters) {
    Launch launch = {.shared = asked->shared, .cluster = {1, 1, 1}};
    memcpy(launch.grid, asked->grid, 12);
    memcpy(launch.block, asked->block, 12);
    for (uint32_t n = 0; n < asked->count; n++)
        if (asked->attributes[n].id == 4) memcpy(launch.cluster, asked->attributes[n].value.cluster, 12); /* ..._CLUSTER_DIMENSION */
    uint32_t cluster = launch.cluster[0] * launch.cluster[1] * launch.cluster[2];
    if (launch.shared > 48 * 1024 && (int)launch.shared > function->shared) return INVALID_VALUE;
    if (!launch.grid[0] || !launch.block[0] || launch.grid[0] % launch.cluster[0] || (cluster > 8 && !function->wide_clusters)) return INVALID_VALUE;
    state.launches++;
    int code = state.kernel(function->name, &launch, parameters, function->shared, function->wide_clusters);
    if (code >= 700) state.sticky = code;   /* a kernel's own failure shows when the host next asks */
    return code >= 700 ? SUCCESS : code;
}

/* --- capture: what is launched meanwhile is noted, its parameters by their addresses, and done when the graph is launched --- */
static Graph *capturing;
int cuLaunchKernelEx(const Configuration *asked, Function *function, void **parameters, void **extra) {
    IN_CONTEXT
    if (!capturing) return launched(asked, function, parameters);
    capturing->nodes = realloc(capturing->nodes, (capturing->count + 1) * sizeof(Node));
    Node *node = &capturing->nodes[capturing->count++];
    *node = (Node){.asked = *asked, .function = function, .parameters = parameters};
    if (asked->count) memcpy(node->attributes, asked->attributes, asked->count * sizeof(Attribute));
    return SUCCESS;
}
int cuStreamBeginCapture(void *stream, int mode) { IN_CONTEXT if (capturing) return INVALID_VALUE; capturing = calloc(1, sizeof(Graph)); state.graphs++; return SUCCESS; }
int cuStreamEndCapture(void *stream, Graph **graph) { IN_CONTEXT *graph = capturing; capturing = NULL; return *graph ? SUCCESS : INVALID_VALUE; }
int cuGraphInstantiateWithFlags(Graph **ready, Graph *graph, unsigned long long flags) {
    IN_CONTEXT
    *ready = calloc(1, sizeof(Graph));
    state.graphs++;
    (*ready)->count = graph->count;
    (*ready)->nodes = malloc((graph->count + 1) * sizeof(Node));
    if (graph->count) memcpy((*ready)->nodes, graph->nodes, graph->count * sizeof(Node));
    return SUCCESS;
}
int cuGraphLaunch(Graph *ready, void *stream) {
    IN_CONTEXT
    state.replays++;
    for (int n = 0; n < ready->count; n++) {
        ready->nodes[n].asked.attributes = ready->nodes[n].attributes;
        int code = launched(&ready->nodes[n].asked, ready->nodes[n].function, ready->nodes[n].parameters);
        if (code || state.sticky) return code;
    }
    return SUCCESS;
}
static int forgotten(Graph *graph) { state.graphs--; free(graph->nodes); free(graph); return SUCCESS; }
int cuGraphDestroy(Graph *graph) { IN_CONTEXT return forgotten(graph); }
int cuGraphExecDestroy(Graph *ready) { IN_CONTEXT return forgotten(ready); }

/* --- events --- */
int cuEventCreate(Event **event, unsigned flags) { IN_CONTEXT *event = calloc(1, sizeof **event); state.events++; return SUCCESS; }
int cuEventRecord(Event *event, void *stream) { IN_CONTEXT event->now = state.now; return SUCCESS; }
int cuEventSynchronize(Event *event) { IN_CONTEXT return SUCCESS; }
int cuEventDestroy(Event *event) { IN_CONTEXT state.events--; free(event); return SUCCESS; }
int cuEventElapsedTime(float *ms, Event *begin, Event *end) { IN_CONTEXT *ms = (end->now - begin->now) / 1e6f; return SUCCESS; }
