/* The double's PC sampling (cupti_pcsampling.h), written from the documented interface.
 *
 * A test says what is sampled by `cupti_double_pc`: each adds one program counter with the samples of two reasons. GetData hands out as
 * many as there is room for and tells how many remain. It wants what the header wants: sizes, room for the counts, Enable before GetData,
 * Start and Stop only with start/stop control. Records have a correlation from CUDA 12.4 on, as the version says.
 *
 * A program's kernels sample what CUPTI_DOUBLE_PC names: a file of lines "FUNCTION CUBIN PC REASON SAMPLES", each of which every launch of
 * that function adds; the function "-" is one of the driver's own. CUPTI_DOUBLE_PC_LOG names a file that gets a line for every call, "PID
 * CALL CONTEXT ANSWER", and one for a context that went while it was sampled ("left-on"). What is refused beside wrong sizes: to be
 * enabled while kernels are traced or without privileges, or where another context of the device is sampled; to be configured after a
 * start; a buffer whose records have no size and no room for their counts; any call for a context that is gone.
 *
 * More faults for CUPTI_DOUBLE_FAULTS:
 *   hardware-full=N   the Nth call of GetData finds the hardware's buffer full: 8, and no records
 *   hardware-room=N   the hardware's buffer has room for N program counters: samples of more are dropped, and counted as such
 *   slow-read=N       a reading takes N ms
 *   keep=N            GetData gives at most N records a call, the rest are left to remain */
#define _GNU_SOURCE
#include "double.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OUT_OF_MEMORY = 8, REASONS = 4, MOST = 4096, CONTEXTS = 8, CORRELATED = 22, INVALID_CONTEXT = 3, GONE = 32 };

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
    void *context; int ranges, running, started; uint32_t period, device; uint64_t dropped, other; Data *last; uint64_t range, wanted; Record waiting[MOST]; size_t count;
} contexts[CONTEXTS];
static long reads;
static char calls[4096];
static void *gone[GONE]; /* contexts that were destroyed */

/* A call, as a line of the log; returns its answer. */
static int logged(const char *call, void *context, int answer) {
    const char *path = getenv("CUPTI_DOUBLE_PC_LOG");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (file >= 0) dprintf(file, "%d %s %p %d\n", getpid(), call, context, answer), close(file);
    return answer;
}
static int is_gone(void *context) {
    for (int n = 0; n < GONE; n++) if (context && gone[n] == context) return 1;
    return 0;
}

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
    memset(gone, 0, sizeof gone);
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

static void add(struct Sampled *one, uint64_t cubin, const char *function, uint64_t pc, uint32_t reason, uint32_t samples) {
    long room = double_fault("hardware-room");
    Record *at = one->waiting, *end = at + one->count;
    while (at < end && (at->cubin != cubin || at->pc != pc || strcmp(at->function, function))) at++;
    if (at == end) {
        if (one->count == (room > 0 && room < MOST ? (size_t)room : (size_t)MOST)) { one->dropped += samples; return; }
        *at = (Record){.cubin = cubin, .pc = pc, .function_index = 7, .function = strdup(function), .reason = calloc(REASONS, sizeof(Count))};
        one->count++;
    }
    size_t n = 0;
    while (n < at->reasons && at->reason[n].reason != reason) n++;
    if (n == at->reasons) at->reason[at->reasons++].reason = reason;
    at->reason[n].samples += samples;
}
/* A kernel runs: it samples what the file says of it. */
void cupti_double_pc_launch(const char *launched, void *context) {
    const char *path = getenv("CUPTI_DOUBLE_PC");
    FILE *file = path ? fopen(path, "re") : NULL;
    char line[8192], function[4200];
    unsigned long long cubin, pc;
    unsigned reason, samples;
    double_lock();
    struct Sampled *one = context ? sampled(context) : NULL;
    while (file && one && one->running && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%4199s %llx %llx %u %u", function, &cubin, &pc, &reason, &samples) != 5) continue;
        if (!strcmp(function, "-")) one->other += samples;
        else if (!strcmp(function, launched)) add(one, cubin, function, pc, reason, samples);
    }
    double_unlock();
    if (file) fclose(file);
}
/* A context comes (1) or is gone (2), once the subscriber has been told. */
void double_pc_context(uint32_t id, void *context) {
    double_lock();
    for (int n = 0; n < GONE; n++) if (gone[n] == context) gone[n] = NULL;
    for (int n = 0; id == 2 && n < GONE; n++) if (!gone[n]) { gone[n] = context; break; }
    struct Sampled *one = id == 2 ? sampled(context) : NULL;
    if (one && context) logged("left-on", context, 0), memset(one, 0, sizeof *one);
    double_unlock();
}

static int enable(ContextParams *params) {
    called("enable");
    struct Sampled *one = sampled(NULL);
    if (params->size != sizeof *params || !params->context || sampled(params->context) || !one) return INVALID_PARAMETER;
    if (double_fault("privileges") >= 0) return INSUFFICIENT_PRIVILEGES;
    if (double_tracing_kernels()) return INVALID_OPERATION;
    uint32_t device = double_device_of(params->context);
    for (int n = 0; device != UINT32_MAX && n < CONTEXTS; n++)
        if (contexts[n].context && contexts[n].device == device) return INVALID_OPERATION;
    *one = (struct Sampled){.context = params->context, .running = 1, .period = 12, .wanted = UINT64_MAX, .device = device};
    return SUCCESS;
}
static size_t record_size(void) { return double_version() >= CORRELATED ? 64 : 56; }
/* Whether a client's buffer is one: its own size, and records with theirs and with room for counts. */
static int whole(const Data *data) {
    if (!data || data->size != sizeof *data || !data->records || !data->room) return 0;
    for (size_t n = 0; n < data->room; n++) {
        const Record *record = (const Record *)(data->records + n * record_size());
        if (record->size != record_size() || !record->reason) return 0;
    }
    return 1;
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
    case BUFFER: one->last = attribute->value.pointer; return whole(one->last) ? SUCCESS : INVALID_OPERATION;
    case SLEEP: return SUCCESS;
    default: return INVALID_PARAMETER;
    }
}
static int configure(ConfigurationParams *params) {
    called("configure");
    struct Sampled *one = sampled(params->context);
    if (params->size != sizeof *params || !params->context || !one) return INVALID_PARAMETER;
    if (one->started) return INVALID_OPERATION;
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
    one->started = 1;
    one->range += (uint64_t)running;
    one->running = running;
    return SUCCESS;
}

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
    data->total += one->dropped + one->other;
    data->dropped += one->dropped;
    data->other += one->other;
    one->dropped = one->other = 0;
    data->count = given;
    data->remaining = one->count;
    data->range = one->range;
    return SUCCESS;
}
static int get(PointerParams *params) {
    called("read");
    struct Sampled *one = sampled(params->context);
    Data *data = params->pointer;
    long slow = double_fault("slow-read");
    if (slow > 0) nanosleep(&(struct timespec){slow / 1000, slow % 1000 * 1000000}, NULL);
    if (params->size != sizeof *params || !whole(data)) return INVALID_PARAMETER;
    if (!one) return INVALID_OPERATION;
    if (++reads == double_fault("hardware-full")) {
        data->full = 1;
        data->dropped = 100;
        data->total = 100;
        return OUT_OF_MEMORY;
    }
    return hand_out(one, data);
}
static int disable(ContextParams *params) {
    called("disable");
    struct Sampled *one = sampled(params->context);
    if (params->size != sizeof *params || !params->context || !one) return INVALID_PARAMETER;
    int answer = one->last ? hand_out(one, one->last) : SUCCESS;
    for (size_t n = 0; n < one->count; n++) free(one->waiting[n].reason);
    memset(one, 0, sizeof *one);
    return answer;
}
/* The functions themselves: each by the script first, for contexts that live, one at a time, with a line in the log. */
#define CALL(name, type, word, does)                                                                         \
    int name(type *params) {                                                                                 \
        int scripted = double_answer(__func__);                                                              \
        double_lock();                                                                                       \
        int answer = scripted ? scripted : is_gone(params->context) ? INVALID_CONTEXT : does(params);        \
        double_unlock();                                                                                     \
        return logged(word, params->context, answer);                                                        \
    }
static int start(ContextParams *params) { return start_or_stop(params, "start", 1); }
static int stop(ContextParams *params) { return start_or_stop(params, "stop", 0); }
CALL(cuptiPCSamplingEnable, ContextParams, "enable", enable)
CALL(cuptiPCSamplingSetConfigurationAttribute, ConfigurationParams, "configure", configure)
CALL(cuptiPCSamplingStart, ContextParams, "start", start)
CALL(cuptiPCSamplingStop, ContextParams, "stop", stop)
CALL(cuptiPCSamplingGetData, PointerParams, "read", get)
CALL(cuptiPCSamplingDisable, ContextParams, "disable", disable)
/* A sum in place of a CRC: the same bytes have the same one. */
int cuptiGetCubinCrc(CrcParams *params) {
    ANSWER;
    if (params->size != sizeof *params || !params->cubin || !params->length) return INVALID_PARAMETER;
    params->crc = params->length;
    for (size_t n = 0; n < params->length; n++) params->crc = params->crc * 31 + params->cubin[n];
    return SUCCESS;
}
/* What a module that goes leaves unread is put into the buffer of the configuration, as far as there is room. */
static void flush_unread(void) {
    double_lock();
    for (int n = 0; n < CONTEXTS; n++)
        if (contexts[n].context && contexts[n].count && contexts[n].last && !contexts[n].last->count) hand_out(&contexts[n], contexts[n].last);
    double_unlock();
}
/* A module comes (6) or goes (7). */
void cupti_double_module(uint32_t id, void *context, const char *cubin, size_t size) {
    struct { uint32_t module; size_t size; const char *cubin; } module = {1, size, cubin};
    struct { void *context, *stream, *descriptor; } resource = {context, NULL, &module};
    double_call_back(RESOURCE, id, &resource);
    if (id == 7) flush_unread();
}
