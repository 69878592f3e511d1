/* The double's SASS metrics (cupti_sass_metrics.h), written from the documented interface. A kernel has three instructions, at 0, 16 and 32,
 * which each of its `grid` blocks, of one warp, executes once: one of no floating point, an FFMA, an FADD. Three metrics:
 *
 *   smsp__sass_inst_executed                              `grid` at each instruction
 *   smsp__sass_thread_inst_executed_op_ffma_pred_on       32 × `grid` at the second
 *   smsp__sass_thread_inst_executed_op_fadd_pred_on       32 × `grid` at the third
 *
 * Calls in another order than the header has, and sizes that its macros do not give, are refused. */
#include "double.h"
#include <stdlib.h>
#include <string.h>

enum { FUNCTIONS = 16, CONTEXTS = 16, INSTRUCTIONS = 3, METRICS = 3, FLUSH_SIZE = 40, INVALID_CONTEXT = 3 };
#define HEAD size_t structSize; void *pPriv
#define SIZE_TO(last) (offsetof(__typeof__(*p), last) + sizeof p->last)
#define CHECK(last) do { ANSWER; if (!p || p->structSize != SIZE_TO(last) || p->pPriv) return INVALID_PARAMETER; } while (0)

static const char *const names[METRICS] = {"smsp__sass_inst_executed", "smsp__sass_thread_inst_executed_op_ffma_pred_on",
                                           "smsp__sass_thread_inst_executed_op_fadd_pred_on"};
typedef struct { uint64_t id; const char *name, *words; } Details;
typedef struct { uint64_t id; uint8_t granularity; } Metric;
typedef struct { uint64_t id, value; } Value;
typedef struct { HEAD; uint32_t cubin, function_index; const char *function; uint32_t pc; Value *values; } Record;
typedef struct { HEAD; const char *chip, *name; Details metric; } Properties;
typedef struct { HEAD; size_t count; Metric *metrics; uint32_t device; } SetConfig;
typedef struct { HEAD; uint32_t device; } UnsetConfig;
typedef struct { HEAD; void *context; uint8_t lazily; } Enable;
typedef struct { HEAD; void *context; size_t dropped; } Disable;
typedef struct { HEAD; void *context; size_t records, instances; } Amounts;
typedef struct { HEAD; void *context; size_t records, instances; Record *data; } Flush;

static struct { int set; unsigned metrics; uint32_t device; } configured;
static struct counted { void *context; size_t functions; char function[FUNCTIONS][64]; uint64_t grid[FUNCTIONS]; } contexts[CONTEXTS];

static struct counted *of(void *context) {
    for (struct counted *one = contexts; one < contexts + CONTEXTS; one++) if (one->context == context) return one;
    return NULL;
}
static size_t enabled(void) {
    size_t found = 0;
    for (struct counted *one = contexts; one < contexts + CONTEXTS; one++) found += one->context != NULL;
    return found;
}
int cuptiSassMetricsGetProperties(Properties *p) {
    CHECK(metric);
    if (!p->chip || strcmp(p->chip, "GH100")) return INVALID_PARAMETER;
    for (uint64_t id = 0; id < METRICS; id++)
        if (p->name && !strcmp(p->name, names[id])) return p->metric = (Details){id + 0x1000, names[id], ""}, SUCCESS;
    return INVALID_PARAMETER;
}
int cuptiSassMetricsSetConfig(SetConfig *p) {
    CHECK(device);
    if (double_fault("privileges") >= 0) return INSUFFICIENT_PRIVILEGES;
    if (!p->count || !p->metrics) return INVALID_PARAMETER;
    if (configured.set) return INVALID_OPERATION;
    configured.metrics = 0;
    for (size_t n = 0; n < p->count; n++) {
        if (p->metrics[n].id - 0x1000 >= METRICS || p->metrics[n].granularity) return INVALID_PARAMETER;
        configured.metrics |= 1u << (p->metrics[n].id - 0x1000);
    }
    configured.set = 1, configured.device = p->device;
    return SUCCESS;
}
int cuptiSassMetricsUnsetConfig(UnsetConfig *p) {
    CHECK(device);
    if (!configured.set || configured.device != p->device || enabled()) return INVALID_OPERATION;
    configured.set = 0;
    return SUCCESS;
}
int cuptiSassMetricsEnable(Enable *p) {
    CHECK(lazily);
    if (!p->context) return INVALID_CONTEXT;
    if (!configured.set || p->lazily > 1 || of(p->context) || double_creating_context()) return INVALID_OPERATION;
    struct counted *free = of(NULL);
    if (!free) return INVALID_OPERATION;
    memset(free, 0, sizeof *free);
    free->context = p->context;
    return SUCCESS;
}
int cuptiSassMetricsDisable(Disable *p) {
    CHECK(dropped);
    struct counted *one = p->context ? of(p->context) : NULL;
    if (!one || !configured.set) return INVALID_OPERATION;
    p->dropped = one->functions * INSTRUCTIONS;
    memset(one, 0, sizeof *one);
    return SUCCESS;
}
int cuptiSassMetricsGetDataProperties(Amounts *p) {
    CHECK(instances);
    struct counted *one = p->context ? of(p->context) : NULL;
    if (!one) return INVALID_OPERATION;
    p->records = one->functions * INSTRUCTIONS, p->instances = 1;
    return SUCCESS;
}
int cuptiSassMetricsFlushData(Flush *p) {
    CHECK(instances); /* the header's macro leaves the last member out */
    struct counted *one = p->context ? of(p->context) : NULL;
    if (!one) return INVALID_OPERATION;
    if (p->records != one->functions * INSTRUCTIONS || p->instances != 1 || !p->data) return INVALID_PARAMETER;
    for (size_t n = 0; n < p->records; n++) {
        Record *record = p->data + n;
        if (record->structSize != FLUSH_SIZE || !record->values) return INVALID_PARAMETER;
        size_t function = n / INSTRUCTIONS, instruction = n % INSTRUCTIONS, value = 0;
        record->cubin = 7, record->function_index = (uint32_t)function, record->function = one->function[function];
        record->pc = (uint32_t)instruction * 16;
        for (uint64_t id = 0; id < METRICS; id++) {
            if (!(configured.metrics >> id & 1)) continue;
            uint64_t times = id ? 32 * (id == instruction) : 1;
            record->values[value++] = (Value){id + 0x1000, times * one->grid[function]};
        }
    }
    one->functions = 0;
    return SUCCESS;
}
void cupti_double_sass_launch(const char *function, void *context, unsigned grid) {
    double_lock();
    struct counted *one = context ? of(context) : NULL;
    size_t n = 0;
    while (one && n < one->functions && strcmp(one->function[n], function)) n++;
    if (one && n < FUNCTIONS) {
        if (n == one->functions) one->functions++, one->grid[n] = 0, strncpy(one->function[n], function, sizeof one->function[n] - 1);
        one->grid[n] += grid;
    }
    double_unlock();
}
void double_sass_reset(void) {
    memset(&configured, 0, sizeof configured);
    memset(contexts, 0, sizeof contexts);
}
