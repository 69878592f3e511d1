/* The double's counters (cupti_profiler_host.h, cupti_range_profiler.h, cupti_pmsampling.h), written from the documented interface; its
 * images have a form of their own. Four metrics, whose counters lie in groups of which a pass collects one:
 *
 *   double__work.sum     group 0: the work of the kernels       double__rare.sum    group 1: ten times it, unknown to PM sampling
 *   double__kernels.sum  group 0: how many kernels              double__slow.sum    groups 2 and 3: a hundred times it
 *
 * A value whose groups were not all collected is NaN. Calls in another order than the headers and NVIDIA's samples have, and parameters
 * that they forbid, are refused. Where a libnvperf lies beside the double, as in NVIDIA's wheels, it must be loaded before it is needed:
 * libcupti has no RUNPATH, and answers 15 (NOT_INITIALIZED) otherwise. Scripted faults beside those of double.h:
 *   overflow   PM sampling's hardware buffer has run over        never-complete   the ranges never have enough passes
 *   buffer=N   a hardware buffer of more bytes is refused        no-oldest, no-latest   so is this way to fill it
 *   ring       with the latest samples kept, none can be read before sampling stops
 *   forgets    samples for which an image had no room are lost, as was reported of CUDA 13.3; else they come next
 *   CUPTI_DOUBLE_CHIP  the chip (GH100) */
#define _GNU_SOURCE
#include "double.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GROUPS = 4, RANGES = 64, NAME = 96, INVALID_CONTEXT = 3, OUT_OF_MEMORY = 8, DEEPEST = 8, FULL = 1, END = 2 };
#define SIZE_TO(last) (offsetof(__typeof__(*p), last) + sizeof p->last)
#define SIZED(last) do { if (!p || p->structSize != SIZE_TO(last)) return INVALID_PARAMETER; } while (0)
#define CHECK(last) do { ANSWER; SIZED(last); } while (0)
#define HEAD size_t structSize; void *pPriv
#define AMONG (double_fault("privileges") >= 0 ? INSUFFICIENT_PRIVILEGES : SUCCESS)

static const struct { const char *name; unsigned groups; int sampled; double weight; } metrics[] = {
    {"double__work.sum", 1, 1, 1}, {"double__kernels.sum", 1, 1, 0}, {"double__rare.sum", 2, 0, 10}, {"double__slow.sum", 12, 1, 100}};
typedef struct { char magic[8]; unsigned groups; int use; } Config;
typedef struct { char name[NAME]; double work, kernels; uint64_t start, end; size_t pass; unsigned seen; } Row;
typedef struct { char magic[8]; size_t most, count; Row rows[]; } Data;
typedef struct { int use; Config config; } Host;

/* Whether a library of NVIDIA's wheel is there to be used: a double without its wheel's other libraries needs none. */
static int loaded(const char *name) {
    char path[4096];
    Dl_info here;
    if (!dladdr((void *)loaded, &here) || !strrchr(here.dli_fname, '/')) return 1;
    snprintf(path, sizeof path, "%.*s/%s", (int)(strrchr(here.dli_fname, '/') - here.dli_fname), here.dli_fname, name);
    return access(path, R_OK) != 0 || dlopen(name, RTLD_NOW | RTLD_NOLOAD) != NULL;
}
#define NEEDS(name) do { if (!loaded(name)) return NOT_INITIALIZED; } while (0)

static int find(const char *name) {
    for (size_t n = 0; n < sizeof metrics / sizeof *metrics; n++) if (!strcmp(metrics[n].name, name)) return (int)n;
    return -1;
}
static size_t passes(unsigned groups) { return (size_t)__builtin_popcount(groups); }
static int known_chip(const char *chip) { return chip && (!strcmp(chip, "GH100") || !strcmp(chip, "GA100") || !strcmp(chip, "TU102")); }

/* The host half. */
typedef struct { HEAD; int use; const char *chip; const uint8_t *available; Host *host; } HostInitialize;
typedef struct { HEAD; Host *host; } HostDeinitialize;
typedef struct { HEAD; Host *host; const char **names; size_t count; } AddMetrics;
typedef struct { HEAD; Host *host; size_t size; } ConfigSize;
typedef struct { HEAD; Host *host; size_t size; uint8_t *config; } ConfigImage;
typedef struct { HEAD; size_t size; uint8_t *config; size_t passes; } NumOfPasses;
typedef struct { HEAD; Host *host; const uint8_t *data; size_t size, index; const char **names; size_t count; double *values; } Evaluate;

int cuptiProfilerHostInitialize(HostInitialize *p) {
    CHECK(host);
    NEEDS("libnvperf_host.so");
    if (!known_chip(p->chip)) return INVALID_PARAMETER;
    p->host = calloc(1, sizeof *p->host);
    p->host->use = p->use;
    return SUCCESS;
}
int cuptiProfilerHostDeinitialize(HostDeinitialize *p) {
    CHECK(host);
    free(p->host);
    return SUCCESS;
}
int cuptiProfilerHostConfigAddMetrics(AddMetrics *p) {
    CHECK(count);
    for (size_t n = 0; n < p->count; n++) {
        int metric = find(p->names[n]);
        if (metric < 0 || (p->host->use && !metrics[metric].sampled)) return INVALID_PARAMETER;
        p->host->config.groups |= metrics[metric].groups;
    }
    memcpy(p->host->config.magic, "CONFIG", 7);
    p->host->config.use = p->host->use;
    return SUCCESS;
}
int cuptiProfilerHostGetConfigImageSize(ConfigSize *p) {
    CHECK(size);
    p->size = sizeof(Config);
    return SUCCESS;
}
int cuptiProfilerHostGetConfigImage(ConfigImage *p) {
    CHECK(config);
    if (p->size < sizeof(Config)) return TOO_SMALL;
    memcpy(p->config, &p->host->config, sizeof(Config));
    return SUCCESS;
}
int cuptiProfilerHostGetNumOfPasses(NumOfPasses *p) {
    CHECK(passes);
    if (p->size != sizeof(Config) || strcmp((char *)p->config, "CONFIG")) return INVALID_PARAMETER;
    p->passes = passes(((Config *)p->config)->groups);
    return SUCCESS;
}
int cuptiProfilerHostEvaluateToGpuValues(Evaluate *p) {
    const Data *data = (const Data *)p->data;
    CHECK(values);
    if (strcmp(data->magic, "DATA") || p->index >= data->count) return INVALID_PARAMETER;
    for (size_t n = 0; n < p->count; n++) {
        int metric = find(p->names[n]);
        const Row *row = &data->rows[p->index];
        if (metric < 0) return INVALID_PARAMETER;
        int complete = (row->seen & metrics[metric].groups) == metrics[metric].groups;
        p->values[n] = !complete ? NAN : metrics[metric].weight ? metrics[metric].weight * row->work : row->kernels;
    }
    return SUCCESS;
}

/* What both uses of the target share. */
typedef struct { HEAD; } Plain;
typedef struct { HEAD; size_t device; const char *chip; } ChipName;
typedef struct { HEAD; void *context; size_t size; uint8_t *image; uint8_t device_level; } ContextAvailability;
typedef struct { HEAD; size_t device, size; uint8_t *image; } DeviceAvailability;
typedef struct { HEAD; int device, supported, architecture, sli, virtual, confidential, cmp, wsl, api, sku; } DeviceSupported;

static int begun;
int cuptiProfilerInitialize(Plain *p) { CHECK(pPriv); begun++; return begun > 1 ? INVALID_OPERATION : SUCCESS; }
int cuptiProfilerDeInitialize(Plain *p) { CHECK(pPriv); abort(); } /* as the real one does the second time: nobody may call it */
int cuptiDeviceGetChipName(ChipName *p) {
    CHECK(chip);
    p->chip = getenv("CUPTI_DOUBLE_CHIP") ? getenv("CUPTI_DOUBLE_CHIP") : "GH100";
    return SUCCESS;
}
static int available(size_t *size, uint8_t *image) {
    if (!begun) return INVALID_OPERATION;
    NEEDS("libnvperf_target.so");
    if (image) memset(image, 1, *size);
    *size = 40;
    return AMONG;
}
int cuptiProfilerGetCounterAvailability(ContextAvailability *p) {
    ANSWER;
    if (p->structSize != (double_version() >= 130100 ? SIZE_TO(device_level) : SIZE_TO(image))) return INVALID_PARAMETER;
    return available(&p->size, p->image);
}
int cuptiPmSamplingGetCounterAvailability(DeviceAvailability *p) { CHECK(image); return available(&p->size, p->image); }
int cuptiProfilerDeviceSupported(DeviceSupported *p) {
    ANSWER;
    if (p->structSize != (double_version() >= 130100 ? SIZE_TO(sku) : SIZE_TO(api))) return INVALID_PARAMETER;
    p->architecture = p->sli = p->confidential = p->cmp = p->wsl = p->virtual = 3;
    if (double_fault("virtual") >= 0) p->virtual = 2;
    p->supported = p->virtual;
    return SUCCESS;
}
static size_t data_size(size_t rows) { return sizeof(Data) + rows * sizeof(Row); }
static int initialize(uint8_t *bytes, size_t size) {
    Data *data = (Data *)bytes;
    if (!bytes || (uintptr_t)bytes % 8 || size < sizeof(Data)) return INVALID_PARAMETER;
    memset(bytes, 0, size);
    memcpy(data->magic, "DATA", 5);
    data->most = (size - sizeof(Data)) / sizeof(Row);
    return SUCCESS;
}

/* Ranges. */
typedef struct { HEAD; void *context; void *object; } RangeEnable;
typedef struct { HEAD; void *object; } RangeObject;
typedef struct { HEAD; void *object; const char **names; size_t count, most; uint32_t nodes; size_t size; } RangeSize;
typedef struct { HEAD; void *object; size_t size; uint8_t *data; } RangeData;
typedef struct { HEAD; void *object; size_t config_size; const uint8_t *config; size_t size; uint8_t *data; int range, replay;
                 size_t most; uint16_t levels, lowest; size_t pass; uint16_t target; } RangeConfig;
typedef struct { HEAD; void *object; size_t pass, level; uint8_t complete; } RangeStop;
typedef struct { HEAD; void *object; const char *name; } RangePush;
typedef struct { HEAD; void *object; size_t dropped; } RangeDecode;
typedef struct { HEAD; const uint8_t *data; size_t size, count; } RangeCount;
typedef struct { HEAD; const uint8_t *data; size_t size, index; const char *delimiter, *name; } RangeName;

static struct {
    int enabled, configured, running, range, replay, depth;
    unsigned groups, now;
    size_t levels, pass, most, rows, order, dropped;
    char stack[DEEPEST][NAME];
    Row row[RANGES];
    Data *data;
} ranges;

static int enables; /* good calls of cuptiRangeProfilerEnable so far */
static Row *row_named(const char *name) {
    for (size_t n = 0; n < ranges.rows; n++) if (!strcmp(ranges.row[n].name, name)) return &ranges.row[n];
    if (ranges.rows == RANGES) return NULL;
    snprintf(ranges.row[ranges.rows].name, NAME, "%s", name);
    ranges.row[ranges.rows].pass = ranges.pass;
    return &ranges.row[ranges.rows++];
}
static void add(Row *row, double work) {
    if (!row) return;
    if (row->pass == ranges.pass) { row->work += work; row->kernels++; } /* the first pass says how much there is */
    row->seen |= ranges.now;
}
static void count(double work) {
    char name[DEEPEST * NAME] = "";
    if (!ranges.running) return;
    if (ranges.range == 1) { snprintf(name, NAME, "%zu", ranges.order++); add(row_named(name), work); return; }
    for (int level = 0; level < ranges.depth && level < (int)ranges.levels; level++) {
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s%s", level ? "/" : "", ranges.stack[level]);
        add(row_named(name), work);
    }
}
/* A kernel runs, with so much work. */
void cupti_double_count(double work) {
    double_lock();
    count(work);
    double_unlock();
}
static unsigned group_of(size_t pass) {
    unsigned left = ranges.groups;
    for (pass %= passes(left); pass; pass--) left &= left - 1;
    return left & -left;
}
static int range_Enable(RangeEnable *p) {
    SIZED(object);
    if (!p->context) return INVALID_PARAMETER;
    if (double_creating_context()) return INVALID_CONTEXT; /* it isn't whole yet */
    if (!begun || ranges.enabled) return INVALID_OPERATION;
    NEEDS("libnvperf_target.so");
    memset(&ranges, 0, sizeof ranges);
    ranges.enabled = 1;
    enables++;
    p->object = &ranges;
    return SUCCESS; /* whoever has no right to count is told so when counting starts, or when asking what there is to count */
}
int cupti_double_enables(void) { return enables; }
static int range_Disable(RangeObject *p) {
    SIZED(object);
    if (!ranges.enabled) return INVALID_OPERATION;
    ranges.enabled = 0;
    return SUCCESS;
}
int cuptiRangeProfilerGetCounterDataSize(RangeSize *p) {
    CHECK(size);
    if (!ranges.enabled || p->object != &ranges) return INVALID_OPERATION;
    if (p->nodes < p->most || !p->most || !p->count) return INVALID_PARAMETER;
    p->size = data_size(p->most);
    return SUCCESS;
}
int cuptiRangeProfilerCounterDataImageInitialize(RangeData *p) {
    CHECK(data);
    return ranges.enabled ? initialize(p->data, p->size) : INVALID_OPERATION;
}
static int range_SetConfig(RangeConfig *p) {
    SIZED(target);
    if (!ranges.enabled || ranges.running) return INVALID_OPERATION;
    if (p->object != &ranges || p->config_size != sizeof(Config) || strcmp((const char *)p->config, "CONFIG")) return INVALID_PARAMETER;
    if (p->size < data_size(p->most) || strcmp((char *)p->data, "DATA") || !p->most || p->pass) return INVALID_PARAMETER;
    if (p->range < 1 || p->range > 2 || p->replay < 2 || p->replay > 3 || (p->range == 2 && p->replay == 2)) return INVALID_PARAMETER;
    if (!p->lowest || !p->levels || (p->range == 1 && p->levels != 1)) return INVALID_PARAMETER;
    if (p->target != p->lowest) return INVALID_PARAMETER; /* where replay begins; 0 is no level */
    ranges.configured = 1;
    ranges.range = p->range;
    ranges.replay = p->replay;
    ranges.groups = ((const Config *)p->config)->groups;
    ranges.levels = p->levels;
    ranges.most = p->most;
    ranges.data = (Data *)p->data;
    return SUCCESS;
}
static int range_Start(RangeObject *p) {
    SIZED(object);
    if (!ranges.enabled || !ranges.configured || ranges.running) return INVALID_OPERATION;
    if (AMONG) return AMONG;
    ranges.running = 1;
    ranges.order = 0;
    ranges.now = ranges.replay == 2 ? ranges.groups : group_of(ranges.pass);
    return SUCCESS;
}
static int range_Stop(RangeStop *p) {
    SIZED(complete);
    if (!ranges.running || ranges.depth) return INVALID_OPERATION;
    ranges.running = 0;
    p->pass = ++ranges.pass;
    p->complete = double_fault("never-complete") < 0 && (ranges.replay == 2 || ranges.pass >= passes(ranges.groups) * ranges.levels);
    return SUCCESS;
}
int cuptiRangeProfilerPushRange(RangePush *p) {
    CHECK(name);
    if (!ranges.running || ranges.range != 2 || ranges.depth == DEEPEST) return INVALID_OPERATION;
    snprintf(ranges.stack[ranges.depth++], NAME, "%s", p->name);
    return SUCCESS;
}
int cuptiRangeProfilerPopRange(RangeObject *p) {
    CHECK(object);
    if (!ranges.depth) return INVALID_OPERATION;
    ranges.depth--;
    return SUCCESS;
}
static int range_DecodeData(RangeDecode *p) {
    SIZED(dropped);
    if (!ranges.enabled || !ranges.configured || ranges.running || !ranges.pass) return INVALID_OPERATION;
    ranges.data->count = ranges.rows < ranges.data->most ? ranges.rows : ranges.data->most;
    memcpy(ranges.data->rows, ranges.row, ranges.data->count * sizeof(Row));
    p->dropped = ranges.rows - ranges.data->count;
    return SUCCESS;
}
/* One call at a time: several threads may count. */
#define LOCKED(name, type) int cuptiRangeProfiler##name(type *p) { ANSWER; double_lock(); int code = range_##name(p); double_unlock(); return code; }
LOCKED(Enable, RangeEnable)
LOCKED(Disable, RangeObject)
LOCKED(SetConfig, RangeConfig)
LOCKED(Start, RangeObject)
LOCKED(Stop, RangeStop)
LOCKED(DecodeData, RangeDecode)
int cuptiRangeProfilerGetCounterDataInfo(RangeCount *p) {
    CHECK(count);
    p->count = ((const Data *)p->data)->count;
    return SUCCESS;
}
int cuptiRangeProfilerCounterDataGetRangeInfo(RangeName *p) {
    CHECK(name);
    if (p->index >= ((const Data *)p->data)->count || strcmp(p->delimiter, "/")) return INVALID_PARAMETER;
    p->name = ((const Data *)p->data)->rows[p->index].name;
    return SUCCESS;
}

/* PM sampling. */
typedef struct { HEAD; size_t device; void *object; } SamplingEnable;
typedef struct { HEAD; void *object; size_t config_size; const uint8_t *config; size_t buffer; uint64_t interval; int trigger, keep; } SamplingConfig;
typedef struct { HEAD; void *object; const char **names; size_t count; uint32_t most; size_t size; } SamplingSize;
typedef struct { HEAD; void *object; uint8_t *data; size_t size; int reason; uint8_t overflow; } SamplingDecode;
typedef struct { HEAD; const uint8_t *data; size_t size, total, populated, completed; } SamplingCount;
typedef struct { HEAD; void *object; const uint8_t *data; size_t size, index; uint64_t start, end; } SampleTime;

static struct {
    int enabled, configured, running, begun, trigger, keep;
    unsigned groups;
    uint64_t interval;
    size_t size, waiting;
    Row buffer[RANGES];
} sampling;

/* The hardware takes a sample. Before the first one after a start comes one that no interval made, as an H200 gave it under driver 580:
   its time goes back seconds, to whatever was last, and its counts are those since the start. */
void cupti_double_sample(uint64_t start, uint64_t end, double work) {
    if (!sampling.running || sampling.waiting == RANGES) return;
    if (!sampling.begun) {
        sampling.begun = 1;
        sampling.buffer[sampling.waiting++] = (Row){.work = 1e6, .kernels = 1000, .start = 1, .end = start > 1 ? start : 50, .seen = sampling.groups};
    }
    sampling.buffer[sampling.waiting++] = (Row){.work = work, .kernels = 1, .start = start, .end = end, .seen = sampling.groups};
}
int cupti_double_trigger(void) { return sampling.trigger; }
int cupti_double_keep(void) { return sampling.keep; }
uint64_t cupti_double_interval(void) { return sampling.interval; }
uint64_t cupti_double_buffer(void) { return sampling.size; }
int cupti_double_counting(void) { return ranges.enabled + 2 * sampling.enabled; } /* what is still held of the device */

int cuptiPmSamplingEnable(SamplingEnable *p) {
    CHECK(object);
    if (!begun || sampling.enabled) return INVALID_OPERATION;
    if (AMONG) return AMONG;
    memset(&sampling, 0, sizeof sampling);
    sampling.enabled = 1;
    p->object = &sampling;
    return SUCCESS;
}
int cuptiPmSamplingDisable(RangeObject *p) {
    CHECK(object);
    if (!sampling.enabled) return INVALID_OPERATION;
    sampling.enabled = 0;
    return SUCCESS;
}
int cuptiPmSamplingSetConfig(SamplingConfig *p) {
    CHECK(keep);
    if (!sampling.enabled) return INVALID_OPERATION;
    if (strcmp((const char *)p->config, "CONFIG") || !p->buffer || !p->interval) return INVALID_PARAMETER;
    sampling.groups = ((const Config *)p->config)->groups;
    if (passes(sampling.groups) > 1 || double_fault(p->keep ? "no-latest" : "no-oldest") >= 0) return NOT_SUPPORTED;
    if (double_fault("buffer") >= 0 && p->buffer > (size_t)double_fault("buffer")) return INVALID_PARAMETER;
    sampling.configured = 1;
    sampling.size = p->buffer;
    sampling.trigger = p->trigger;
    sampling.keep = p->keep;
    sampling.interval = p->interval;
    return SUCCESS;
}
int cuptiPmSamplingGetCounterDataSize(SamplingSize *p) {
    CHECK(size);
    p->size = data_size(p->most);
    return sampling.enabled ? SUCCESS : INVALID_OPERATION;
}
int cuptiPmSamplingCounterDataImageInitialize(RangeData *p) {
    CHECK(data);
    return sampling.enabled ? initialize(p->data, p->size) : INVALID_OPERATION;
}
int cuptiPmSamplingStart(RangeObject *p) {
    CHECK(object);
    if (!sampling.configured || sampling.running) return INVALID_OPERATION;
    sampling.running = 1;
    sampling.begun = 0;
    return SUCCESS;
}
int cuptiPmSamplingStop(RangeObject *p) {
    CHECK(object);
    if (!sampling.running) return INVALID_OPERATION;
    sampling.running = 0;
    return SUCCESS;
}
int cuptiPmSamplingDecodeData(SamplingDecode *p) {
    Data *data = (Data *)p->data;
    CHECK(overflow);
    if (!sampling.enabled) return INVALID_OPERATION;
    if (strcmp(data->magic, "DATA") || data->count) return INVALID_PARAMETER; /* an image that was not emptied makes no progress */
    p->overflow = double_fault("overflow") >= 0;
    if (p->overflow) return OUT_OF_MEMORY;
    if (sampling.keep && sampling.running && double_fault("ring") >= 0) return SUCCESS;
    p->reason = sampling.waiting > data->most ? FULL : END;
    data->count = sampling.waiting < data->most ? sampling.waiting : data->most;
    memcpy(data->rows, sampling.buffer, data->count * sizeof(Row));
    sampling.waiting = double_fault("forgets") >= 0 ? 0 : sampling.waiting - data->count;
    memmove(sampling.buffer, sampling.buffer + data->count, sampling.waiting * sizeof(Row));
    return SUCCESS;
}
int cuptiPmSamplingGetCounterDataInfo(SamplingCount *p) {
    CHECK(completed);
    p->total = ((const Data *)p->data)->most;
    p->populated = p->completed = ((const Data *)p->data)->count;
    return SUCCESS;
}
int cuptiPmSamplingCounterDataGetSampleInfo(SampleTime *p) {
    CHECK(end);
    if (p->index >= ((const Data *)p->data)->count) return INVALID_PARAMETER;
    p->start = ((const Data *)p->data)->rows[p->index].start;
    p->end = ((const Data *)p->data)->rows[p->index].end;
    return SUCCESS;
}
void cupti_double_counters_reset(void) {
    begun = 0;
    memset(&ranges, 0, sizeof ranges);
    memset(&sampling, 0, sizeof sampling);
}
