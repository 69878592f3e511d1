/* The double's PC sampling (cupti_pcsampling.h), written from the documented interface.
 *
 * A test says what is sampled by `cupti_double_pc`: each adds one program counter with the samples of two reasons. GetData hands out as
 * many as there is room for and tells how many remain. It wants what the header wants: sizes, room for the counts, Enable before GetData,
 * Start and Stop only with start/stop control. Records have a correlation from CUDA 12.4 on, as the version says.
 *
 * More faults for CUPTI_DOUBLE_FAULTS:
 *   hardware-full=N   the Nth call of GetData finds the hardware's buffer full: 8, and no records
 *   keep=N            GetData gives at most N records a call, the rest are left to remain */
#include "double.h"
#include <stdlib.h>
#include <string.h>

enum { OUT_OF_MEMORY = 8, REASONS = 4, MOST = 4096, CONTEXTS = 8, CORRELATED = 22 };

typedef struct { uint32_t reason, samples; } Count;
typedef struct {
    size_t size; uint64_t cubin, pc; uint32_t function_index, pad; char *function; size_t reasons; Count *reason;
    uint32_t correlation, pad_2;
} Record;
typedef struct {
    size_t size, room; uint64_t total, dropped; size_t count, remaining; uint64_t range; char *records; uint64_t other; uint8_t full;
} Data;
typedef struct { size_t size; void *private, *context; } ContextParams;
typedef struct { size_t size; void *private, *context, *pointer; } PointerParams;
typedef struct { size_t size; void *private, *context; size_t count; uint32_t *indices; char **names; } ReasonsParams;
typedef struct {
    int type, status;
    union { uint64_t data[3]; uint32_t word; size_t number; struct { size_t count; uint32_t *indices; } reasons; void *pointer; } value;
} Attribute;
typedef struct { size_t size; void *private, *context; size_t count; Attribute *attributes; } ConfigurationParams;
typedef struct { size_t size, length; const unsigned char *cubin; uint64_t crc; } CrcParams;
enum { PERIOD = 1, STALLS = 2, SCRATCH = 3, HARDWARE = 4, MODE = 5, RANGES = 6, FORMAT = 7, BUFFER = 8, SLEEP = 9 };

static const char *const names[REASONS] = {
    "smsp__pcsamp_warps_issue_stalled_long_scoreboard", "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued",
    "smsp__pcsamp_warps_issue_stalled_selected", "smsp__pcsamp_warps_issue_stalled_barrier" };
static const uint32_t indices[REASONS] = {3, 4, 17, 9}; /* not in order, and with gaps: nothing may take a place for an index */

static struct Sampled {
    void *context; int ranges, running; uint32_t period; Data *last; uint64_t range, wanted; Record waiting[MOST]; size_t count;
} contexts[CONTEXTS];
static long reads;
static char calls[4096];

static void called(const char *what) {
    if (strlen(calls) + strlen(what) + 2 < sizeof calls) strcat(strcat(calls, what), " ");
}
static struct Sampled *sampled(void *context) {
    for (int n = 0; n < CONTEXTS; n++) if (contexts[n].context == context) return &contexts[n];
    return NULL;
}
const char *cupti_double_pc_calls(void) { return calls; }
void cupti_double_pc_reset(void) {
    for (int n = 0; n < CONTEXTS; n++) for (size_t k = 0; k < contexts[n].count; k++) free(contexts[n].waiting[k].reason);
    memset(contexts, 0, sizeof contexts);
    calls[0] = 0;
    reads = 0;
}
/* A program counter of `function` with samples of the reasons 3 and 17; 0 is "none". Ignored outside a range, as the hardware does. */
int cupti_double_pc(void *context, uint64_t cubin, char *function, uint64_t pc, uint32_t waiting, uint32_t selected, uint32_t correlation) {
    struct Sampled *one = sampled(context);
    if (!one || !one->running || one->count == MOST) return 0;
    Count *counts = calloc(2, sizeof *counts);
    size_t told = 0;
    if (waiting && (one->wanted & 1 << 3)) counts[told++] = (Count){3, waiting};
    if (selected && (one->wanted & 1 << 17)) counts[told++] = (Count){17, selected};
    one->waiting[one->count++] = (Record){0, cubin, pc, 7, 0, function, told, counts, correlation, 0};
    return 1;
}

int cuptiPCSamplingEnable(ContextParams *params) {
    ANSWER;
    called("enable");
    struct Sampled *one = sampled(NULL);
    if (params->size != sizeof *params || !params->context || sampled(params->context) || !one) return INVALID_PARAMETER;
    *one = (struct Sampled){.context = params->context, .running = 1, .period = 12, .wanted = UINT64_MAX};
    return SUCCESS;
}
static int set(struct Sampled *one, Attribute *attribute) {
    switch (attribute->type) {
    case PERIOD: one->period = attribute->value.word; return one->period < 5 || one->period > 31 ? INVALID_OPERATION : SUCCESS;
    case STALLS:
        one->wanted = 0;
        for (size_t n = 0; n < attribute->value.reasons.count; n++) one->wanted |= 1u << attribute->value.reasons.indices[n];
        return one->wanted ? SUCCESS : INVALID_OPERATION;
    case SCRATCH: case HARDWARE: return attribute->value.number ? SUCCESS : INVALID_OPERATION;
    case MODE: return attribute->value.word == 1 || attribute->value.word == 2 ? SUCCESS : INVALID_OPERATION;
    case RANGES: one->ranges = (int)attribute->value.word; one->running = !one->ranges; return SUCCESS;
    case FORMAT: return attribute->value.word == 1 ? SUCCESS : INVALID_OPERATION;
    case BUFFER: one->last = attribute->value.pointer; return one->last && one->last->records ? SUCCESS : INVALID_OPERATION;
    case SLEEP: return SUCCESS;
    default: return INVALID_PARAMETER;
    }
}
int cuptiPCSamplingSetConfigurationAttribute(ConfigurationParams *params) {
    ANSWER;
    called("configure");
    struct Sampled *one = sampled(params->context);
    if (params->size != sizeof *params || !params->context || !one) return INVALID_PARAMETER;
    int answer = SUCCESS;
    for (size_t n = 0; n < params->count; n++) {
        params->attributes[n].status = set(one, &params->attributes[n]);
        if (params->attributes[n].status) answer = INVALID_OPERATION;
    }
    return answer;
}
int cuptiPCSamplingGetConfigurationAttribute(ConfigurationParams *params) {
    ANSWER;
    struct Sampled *one = sampled(params->context);
    if (params->size != sizeof *params || !one || params->count != 1 || params->attributes->type != PERIOD) return INVALID_PARAMETER;
    params->attributes->value.word = one->period;
    return SUCCESS;
}
int cuptiPCSamplingGetNumStallReasons(PointerParams *params) {
    ANSWER;
    if (params->size != sizeof *params || !params->pointer) return INVALID_PARAMETER;
    *(size_t *)params->pointer = REASONS;
    return SUCCESS;
}
int cuptiPCSamplingGetStallReasons(ReasonsParams *params) {
    ANSWER;
    if (params->size != sizeof *params || params->count != REASONS) return INVALID_PARAMETER;
    for (int n = 0; n < REASONS; n++) {
        params->indices[n] = indices[n];
        strcpy(params->names[n], names[n]);
    }
    return SUCCESS;
}
static int start_or_stop(ContextParams *params, const char *what, int running) {
    struct Sampled *one = sampled(params->context);
    called(what);
    if (params->size != sizeof *params || !one) return INVALID_PARAMETER;
    if (!one->ranges) return INVALID_OPERATION;
    one->range += (uint64_t)running;
    one->running = running;
    return SUCCESS;
}
int cuptiPCSamplingStart(ContextParams *params) { ANSWER; return start_or_stop(params, "start", 1); }
int cuptiPCSamplingStop(ContextParams *params) { ANSWER; return start_or_stop(params, "stop", 0); }

static size_t record_size(void) { return double_version() >= CORRELATED ? 64 : 56; }
static int hand_out(struct Sampled *one, Data *data) {
    long keep = double_fault("keep");
    size_t room = keep > 0 && (size_t)keep < data->room ? (size_t)keep : data->room, size = record_size(), given = 0;
    for (; given < room && given < one->count; given++) {
        Record *to = (Record *)(data->records + given * size), *from = &one->waiting[given];
        if (to->size != size || !to->reason) return INVALID_PARAMETER;
        memcpy(to->reason, from->reason, from->reasons * sizeof(Count));
        for (size_t n = 0; n < from->reasons; n++) data->total += from->reason[n].samples;
        free(from->reason);
        from->reason = to->reason;
        from->size = size;
        memcpy(to, from, size);
    }
    memmove(one->waiting, one->waiting + given, (one->count - given) * sizeof *one->waiting);
    one->count -= given;
    data->count = given;
    data->remaining = one->count;
    data->range = one->range;
    return SUCCESS;
}
int cuptiPCSamplingGetData(PointerParams *params) {
    ANSWER;
    called("read");
    struct Sampled *one = sampled(params->context);
    Data *data = params->pointer;
    if (params->size != sizeof *params || !data || data->size != sizeof *data || !data->records) return INVALID_PARAMETER;
    if (!one) return INVALID_OPERATION;
    if (++reads == double_fault("hardware-full")) {
        data->full = 1;
        data->dropped = 100;
        data->total = 100;
        return OUT_OF_MEMORY;
    }
    return hand_out(one, data);
}
int cuptiPCSamplingDisable(ContextParams *params) {
    ANSWER;
    called("disable");
    struct Sampled *one = sampled(params->context);
    if (params->size != sizeof *params || !params->context || !one) return INVALID_PARAMETER;
    int answer = one->last ? hand_out(one, one->last) : SUCCESS;
    for (size_t n = 0; n < one->count; n++) free(one->waiting[n].reason);
    memset(one, 0, sizeof *one);
    return answer;
}
/* A sum in place of a CRC: the same bytes have the same one. */
int cuptiGetCubinCrc(CrcParams *params) {
    ANSWER;
    if (params->size != sizeof *params || !params->cubin || !params->length) return INVALID_PARAMETER;
    params->crc = params->length;
    for (size_t n = 0; n < params->length; n++) params->crc = params->crc * 31 + params->cubin[n];
    return SUCCESS;
}
/* A module comes (6) or goes (7). */
void cupti_double_module(uint32_t id, void *context, const char *cubin, size_t size) {
    struct { uint32_t module; size_t size; const char *cubin; } module = {1, size, cubin};
    struct { void *context, *stream, *descriptor; } resource = {context, NULL, &module};
    double_call_back(RESOURCE, id, &resource);
}
