/* The double's activity interface: kinds, buffers handed over by the client, records in the layouts of the release. Where several subscribers
 * share CUPTI each has kinds, buffers and drops of its own, asked for by the functions that end with _v2; the others are refused then. */
#define _GNU_SOURCE
#include "double.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KINDS = 64, LONGEST = 256, CALLS = 1024, ATTRIBUTES = 25, SHARED_GRAPHS = 20, THREAD_IDS = 21 };
enum { MEMCPY = 1, MEMSET = 2, KERNEL = 3, DRIVER = 4, RUNTIME = 5, DEVICE = 8, CONTEXT = 9, CONCURRENT_KERNEL = 10, NAME = 11, MARKER = 12,
       OVERHEAD = 17, PAGES = 25, SYNCHRONIZATION = 38, EXTERNAL_CORRELATION = 39, GRAPH_TRACE = 51, STRANGE = 900 };
typedef void (*Request)(uint8_t **buffer, size_t *size, size_t *most);
typedef void (*Complete)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
typedef struct Pending { struct Pending *next; uint64_t end; uint32_t kind; size_t size; unsigned char bytes[LONGEST]; } Pending;

typedef void (*SharedRequest)(uint8_t **buffer, size_t *size, size_t *most, void *information);
typedef void (*SharedComplete)(uint8_t *buffer, size_t size, size_t valid, void *information);
typedef struct { size_t size; uint64_t thread; void *layouts; size_t layout_count; } Completed; /* CUpti_BufferCallbackCompleteInfo */
typedef struct {
    Request request;
    Complete complete;
    SharedRequest shared_request;
    SharedComplete shared_complete;
    unsigned char enabled[KINDS], left_out[2][CALLS]; /* calls of the driver and of the runtime that are not recorded, though their kind is */
    uint8_t *buffer;
    size_t size, used, most, records, offsets[1 << 16];
    Pending *first, **last;
    uint64_t dropped, scripted_drops, all;
} Activity;
static Activity all[SUBSCRIBERS], *turn = all; /* of the subscriber whose turn it is, the lock held; without a subscriber the first one */
#define activity (*turn)
#define EACH for (turn = all; turn < all + SUBSCRIBERS; turn++)
static int graphs_under, graphs_gone; /* whether a graph was launched while somebody recorded, and whether CUPTI was finalised since */
static uint32_t finalizations, pages; /* `pages`: a bit for each counter of unified memory that is configured */
static int graphs_as_one = -1;        /* of several subscribers, once it is settled */
static size_t on_devices; /* operations that are in a buffer on the device until they are over */
static size_t attributes[ATTRIBUTES] = {3200000, 8388608, 250, 25000, 250, 0, 3, 3, 0, 1};

static int callbacks_there(void) { return activity.complete || activity.shared_complete; }
static int anyone(uint32_t kind) {
    for (int n = 0; n < SUBSCRIBERS; n++) if (all[n].enabled[kind]) return 1;
    return 0;
}
static void first_turn(void) { turn = all; }

/* Bytes of a record in this release; 0 for a kind that the double never writes. */
static size_t size_of(uint32_t kind) {
    int version = double_version();
    switch (kind) {
    case KERNEL: case CONCURRENT_KERNEL: return version >= 130400 ? 248 : version >= 130300 ? 232 : version >= 130100 ? 224 : version >= 130000 ? 216 : 208;
    case MEMCPY: return version >= 130400 ? 112 : 96;
    case MEMSET: return version >= 130400 ? 104 : 88;
    case DRIVER: case RUNTIME: return 40;
    case DEVICE: return version >= 130200 ? 192 : 184;
    case CONTEXT: return version >= 130100 ? 40 : 32;
    case NAME: return 32;
    case PAGES: return version >= 26 ? 104 : 64;
    case MARKER: case OVERHEAD: case SYNCHRONIZATION: case GRAPH_TRACE: return 56;
    case EXTERNAL_CORRELATION: return 24;
    default: return 0;
    }
}

static int is_operation(uint32_t kind) { return kind == MEMCPY || kind == MEMSET || kind == KERNEL || kind == CONCURRENT_KERNEL; }

/* Each takes 32 bytes there: 100,000 fit into a buffer of the usual size. */
static int device_has_room(void) {
    long bytes = double_fault("device-record");
    return on_devices < attributes[0] / (size_t)(bytes > 0 ? bytes : 32) * attributes[2];
}

static void reverse(void) {
    uint8_t *copy = malloc(activity.used + 1), *to = activity.buffer;
    if (!copy) abort();
    memcpy(copy, activity.buffer, activity.used);
    for (size_t n = activity.records, end = activity.used; n--; end = activity.offsets[n]) {
        memcpy(to, copy + activity.offsets[n], end - activity.offsets[n]);
        to += end - activity.offsets[n];
    }
    free(copy);
}
static void deliver(void) {
    if (!activity.buffer) return;
    uint8_t *buffer = activity.buffer;
    size_t size = activity.size, used = activity.used;
    if (double_fault("disorder") >= 0) reverse();
    activity.buffer = NULL;
    activity.size = activity.used = activity.records = 0;
    Completed completed = {sizeof completed, 1, NULL, 0};
    if (activity.shared_complete) activity.shared_complete(buffer, size, used, &completed);
    else activity.complete(NULL, 0, buffer, size, used);
}
static int has_room(size_t size) {
    long full = double_fault("full");
    size_t most = full > 0 ? (size_t)full : activity.most ? activity.most : 1 << 16;
    if (activity.buffer && (activity.size - activity.used < size || activity.records >= most)) deliver();
    if (!activity.buffer && callbacks_there()) {
        size_t information = sizeof information;
        activity.most = 0;
        if (activity.shared_request) activity.shared_request(&activity.buffer, &activity.size, &activity.most, &information);
        else activity.request(&activity.buffer, &activity.size, &activity.most);
        if (activity.buffer && attributes[5] == 0) memset(activity.buffer, 0, activity.size);
    }
    return activity.buffer && activity.size - activity.used >= size;
}
static void put(const void *record, size_t size) {
    if (!has_room(size)) { activity.dropped++; return; }
    activity.offsets[activity.records++] = activity.used;
    memcpy(activity.buffer + activity.used, record, size);
    activity.used += size;
    if ((long)++activity.all == double_fault("unknown-kind")) cupti_double_unknown(STRANGE, 48);
}
/* Moves what is complete into the buffer; of what isn't, a forced flush takes all, with no end. */
static void settle(int forced) {
    uint64_t now = double_now();
    Pending **at = &activity.first;
    while (*at) {
        Pending *one = *at;
        if (one->end > now && !forced) { at = &one->next; continue; }
        *at = one->next;
        if (one->end > now) memset(one->bytes + (one->kind == MEMCPY || one->kind == MEMSET || one->kind == KERNEL
                                                 || one->kind == CONCURRENT_KERNEL ? 24 : 16), 0, 8);
        on_devices -= is_operation(one->kind);
        put(one->bytes, one->size);
        free(one);
    }
    activity.last = at;
}
static int is_left_out(uint32_t kind, const void *record) {
    uint32_t call = 0;
    if (kind != DRIVER && kind != RUNTIME) return 0;
    memcpy(&call, (const char *)record + 4, sizeof call);
    return call < CALLS && activity.left_out[kind == RUNTIME][call];
}
static void record_in_turn(uint32_t kind, const void *record, size_t size, uint64_t end) {
    if (callbacks_there() && kind < KINDS && activity.enabled[kind] && !is_left_out(kind, record)) {
        Pending *one = calloc(1, sizeof *one);
        if (!one || size > LONGEST) abort();
        *one = (Pending){.end = end, .kind = kind, .size = size};
        memcpy(one->bytes, record, size);
        on_devices += is_operation(kind);
        *(activity.last ? activity.last : &activity.first) = one;
        activity.last = &one->next;
        settle(0);
    }
}
void double_record_of(int subscriber, uint32_t kind, const void *record, size_t size, uint64_t end) {
    double_lock();
    turn = all + subscriber;
    record_in_turn(kind, record, size, end);
    first_turn();
    double_unlock();
}
void double_record(uint32_t kind, const void *record, size_t size, uint64_t end) {
    for (int n = 0; n < SUBSCRIBERS; n++) double_record_of(n, kind, record, size, end);
}
/* What ran on the device: may be dropped by the script. */
static void on_device_in_turn(uint32_t kind, const void *record, uint64_t end) {
    long dropped = double_fault("dropped");
    if (dropped > 0 && kind < KINDS && activity.enabled[kind] && activity.scripted_drops < (uint64_t)dropped) {
        activity.scripted_drops++;
        activity.dropped++;
    } else {
        if (!device_has_room()) settle(0);
        if (device_has_room()) record_in_turn(kind, record, size_of(kind), end);
        else if (kind < KINDS && activity.enabled[kind]) activity.dropped++;
    }
}
static void on_device(uint32_t kind, const void *record, uint64_t end) {
    double_lock();
    EACH on_device_in_turn(kind, record, end);
    first_turn();
    double_unlock();
}

/* --- asked for by the process, or by one of several subscribers --- */

#define ALONE do { if (double_shared()) return NOT_SUPPORTED; } while (0)
/* Calls a function for a subscriber: in its turn, with the lock held. */
#define IN_TURN(subscriber, call)                          \
    do {                                                   \
        int number = double_number(subscriber), answer;    \
        if (number < 0) return INVALID_PARAMETER;          \
        double_lock();                                     \
        turn = all + number;                               \
        answer = call;                                     \
        first_turn();                                      \
        double_unlock();                                   \
        return answer;                                     \
    } while (0)

static int register_shared(SharedRequest request, SharedComplete complete) {
    if (!request || !complete) return INVALID_PARAMETER;
    activity.shared_request = request;
    activity.shared_complete = complete;
    return SUCCESS;
}
int cuptiActivityRegisterCallbacks_v2(void *subscriber, SharedRequest request, SharedComplete complete) {
    ANSWER;
    IN_TURN(subscriber, register_shared(request, complete));
}
int cuptiActivityRegisterCallbacks(Request request, Complete complete) {
    ANSWER;
    ALONE;
    if (!request || !complete) return INVALID_PARAMETER;
    activity.request = request;
    activity.complete = complete;
    return SUCCESS;
}
static int set(uint32_t kind, int enable) {
    const char *script = getenv("CUPTI_DOUBLE_FAULTS");
    if (enable && double_fault("privileges") >= 0) return INSUFFICIENT_PRIVILEGES;
    for (const char *at = script ? strstr(script, "kind=") : NULL; at && enable; at = strstr(at + 1, "kind=")) {
        char *rest;
        if (at[-(at > script)] != '-' && strtoul(at + 5, &rest, 10) == kind && *rest == ':') return atoi(rest + 1);
    }
    if (kind == 0 || kind >= KINDS) return INVALID_KIND;
    if (kind == GRAPH_TRACE && enable && double_shared() && graphs_as_one <= 0) return NOT_COMPATIBLE;
    if (kind == EXTERNAL_CORRELATION || size_of(kind)) activity.enabled[kind] = (unsigned char)enable;
    if (enable && (kind == DRIVER || kind == RUNTIME)) memset(activity.left_out[kind == RUNTIME], 0, CALLS); /* the kind overrides what was said of calls */
    return size_of(kind) ? SUCCESS : NOT_COMPATIBLE;
}
static int enable_in_turn(uint32_t kind, const size_t *configuration) {
    if (configuration && *configuration < 2 * sizeof(size_t)) return INVALID_PARAMETER;
    int answer = set(kind, 1);
    if (!answer && graphs_as_one < 0) graphs_as_one = 0;
    if (!answer && kind == DEVICE) cupti_double_device(0, "Double of an H200");
    return answer;
}
int cuptiActivityEnable_v2(void *subscriber, uint32_t kind, const size_t *configuration) {
    ANSWER;
    IN_TURN(subscriber, enable_in_turn(kind, configuration));
}
int cuptiActivityDisable_v2(void *subscriber, uint32_t kind, const size_t *configuration) {
    ANSWER;
    (void)configuration;
    IN_TURN(subscriber, set(kind, 0));
}
int cuptiActivityEnable(uint32_t kind) {
    ANSWER;
    ALONE;
    double_lock();
    int answer = set(kind, 1);
    if (!answer && kind == DEVICE) cupti_double_device(0, "Double of an H200");
    double_unlock();
    return answer;
}
int cuptiActivityDisable(uint32_t kind) {
    ANSWER;
    ALONE;
    double_lock();
    int answer = set(kind, 0);
    double_unlock();
    return answer;
}

/* Single calls, recorded or not while their kind is. (To record a call whose kind is not is something that the double can't do.) */
static int leave_out(int runtime, uint32_t call, int enable) {
    if (!call || call >= CALLS) return INVALID_PARAMETER;
    activity.left_out[runtime][call] = !enable;
    return SUCCESS;
}
int cuptiActivityEnableDriverApi(uint32_t call, uint8_t enable) { ANSWER; ALONE; return leave_out(0, call, enable); }
int cuptiActivityEnableRuntimeApi(uint32_t call, uint8_t enable) { ANSWER; ALONE; return leave_out(1, call, enable); }
int cuptiActivityEnableDriverApi_v2(void *subscriber, uint32_t call, uint8_t enable) { ANSWER; IN_TURN(subscriber, leave_out(0, call, enable)); }
int cuptiActivityEnableRuntimeApi_v2(void *subscriber, uint32_t call, uint8_t enable) { ANSWER; IN_TURN(subscriber, leave_out(1, call, enable)); }

/* The driver's double says whether it is initialised: not before cuInit is about to return. Without it the tests call us by themselves. */
static int driver_ready(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*ready)(void) = driver ? (int (*)(void))dlsym(driver, "cuda_double_ready") : NULL;
    return !ready || ready();
}
typedef struct { int scope, kind; uint32_t device, enable; } PageCounter; /* CUpti_ActivityUnifiedMemoryCounterConfig */
int cuptiActivityConfigureUnifiedMemoryCounter(const PageCounter *wanted, uint32_t count) {
    ANSWER;
    uint32_t told = pages;
    if (!driver_ready()) return NOT_INITIALIZED;
    if (!wanted || !count) return INVALID_PARAMETER;
    for (uint32_t n = 0; n < count; n++) {
        if (wanted[n].scope < 1 || wanted[n].scope > 2 || wanted[n].kind < 1 || wanted[n].kind > 8) return INVALID_PARAMETER;
        if (wanted[n].kind == 8 && double_fault("one-device") >= 0) return UM_NOT_SUPPORTED_ON_DEVICE;
        told = wanted[n].enable ? told | 1u << wanted[n].kind : told & ~(1u << wanted[n].kind);
    }
    pages = told;
    return SUCCESS;
}

int cuptiActivityFlushAll(uint32_t flag) {
    ANSWER;
    int registered = 0;
    double_lock();
    EACH if (callbacks_there()) settle(flag & 1), deliver(), registered = 1;
    first_turn();
    double_unlock();
    return registered ? SUCCESS : INVALID_OPERATION;
}
int cuptiActivityFlushPeriod(uint32_t milliseconds) { (void)milliseconds; ANSWER; return SUCCESS; }

static int next_record(uint8_t *buffer, size_t valid, uint8_t **record) {
    if (!buffer || !record) return INVALID_PARAMETER;
    uint8_t *next = buffer;
    if (*record) {
        uint32_t kind;
        memcpy(&kind, *record, sizeof kind);
        next = *record + size_of(kind);
    }
    if (next + 8 > buffer + valid) return MAX_LIMIT_REACHED;
    uint32_t kind;
    memcpy(&kind, next, sizeof kind);
    if (!size_of(kind)) return kind ? INVALID_KIND : MAX_LIMIT_REACHED;
    *record = next;
    return SUCCESS;
}
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
    ANSWER;
    ALONE;
    return next_record(buffer, valid, record);
}
int cuptiActivityGetNextRecord_v2(void *subscriber, uint8_t *buffer, size_t valid, uint8_t **record) {
    ANSWER;
    return double_number(subscriber) < 0 ? INVALID_PARAMETER : next_record(buffer, valid, record);
}
static int take_dropped(size_t *dropped) {
    if (!dropped) return INVALID_PARAMETER;
    *dropped = activity.dropped;
    activity.dropped = 0;
    return SUCCESS;
}
int cuptiActivityGetNumDroppedRecords_v2(void *subscriber, void *context, uint32_t stream, size_t *dropped) {
    ANSWER;
    (void)context, (void)stream;
    IN_TURN(subscriber, take_dropped(dropped));
}
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) {
    ANSWER;
    ALONE;
    (void)context, (void)stream;
    double_lock();
    int answer = take_dropped(dropped);
    double_unlock();
    return answer;
}

/* Bytes of an attribute's value: most are flags of one byte, 21 is an enumeration. */
static size_t width(uint32_t attribute) {
    int flag = attribute == 5 || (attribute >= 8 && attribute <= 20 && attribute != 10) || attribute == 23;
    return flag ? 1 : attribute == THREAD_IDS ? 4 : sizeof(size_t);
}
static uint32_t attribute_count(void) { return double_version() >= 130400 ? ATTRIBUTES - 1 : 10; }
/* Fewer buffers are made at first than there may be; who gets buffers of its own, a thread or a process, is settled before they are asked for. */
static int allowed(uint32_t attribute, size_t value) {
    if (attribute == 2 && value <= attributes[6]) return INVALID_PARAMETER;
    if (attribute == 6 && value >= attributes[2]) return INVALID_PARAMETER;
    if (attribute == 12) return INVALID_OPERATION; /* settled by who subscribes */
    if (attribute == SHARED_GRAPHS && double_shared()) {
        if (graphs_as_one >= 0 && graphs_as_one != (int)value) return INVALID_OPERATION;
        graphs_as_one = (int)value;
    }
    return attribute == 9 && callbacks_there() ? INVALID_OPERATION : SUCCESS;
}
static int get_attribute(uint32_t attribute, size_t *size, void *value) {
    if (!size || !value || attribute >= attribute_count()) return INVALID_PARAMETER;
    if (*size < width(attribute)) return TOO_SMALL;
    *size = width(attribute);
    memcpy(value, &attributes[attribute], width(attribute));
    return SUCCESS;
}
static int set_attribute(uint32_t attribute, size_t *size, void *value) {
    if (!size || !value || attribute >= attribute_count()) return INVALID_PARAMETER;
    if (*size < width(attribute)) return TOO_SMALL;
    size_t asked = 0;
    memcpy(&asked, value, width(attribute));
    int answer = allowed(attribute, asked);
    if (answer) return answer;
    attributes[attribute] = 0;
    memcpy(&attributes[attribute], value, width(attribute));
    return SUCCESS;
}
int cuptiActivityGetAttribute(uint32_t attribute, size_t *size, void *value) { ANSWER; ALONE; return get_attribute(attribute, size, value); }
int cuptiActivitySetAttribute(uint32_t attribute, size_t *size, void *value) { ANSWER; ALONE; return set_attribute(attribute, size, value); }
int cuptiActivityGetAttribute_v2(void *subscriber, uint32_t attribute, size_t *size, void *value) {
    ANSWER;
    IN_TURN(subscriber, get_attribute(attribute, size, value));
}
static int set_of_subscriber(void *subscriber, uint32_t attribute, size_t *size, void *value) {
    int answer = set_attribute(attribute, size, value);
    if (!answer && attribute == THREAD_IDS) double_thread_type(subscriber, *(uint32_t *)value);
    return answer;
}
int cuptiActivitySetAttribute_v2(void *subscriber, uint32_t attribute, size_t *size, void *value) {
    ANSWER;
    IN_TURN(subscriber, set_of_subscriber(subscriber, attribute, size, value));
}
int cuptiActivityGetStructSize(uint32_t kind, uint32_t version, size_t *size) {
    ANSWER;
    (void)version;
    if (!size || !size_of(kind)) return INVALID_PARAMETER;
    *size = size_of(kind);
    return SUCCESS;
}

/* The device of each context that the driver's double told of; another one is of the first device. */
static struct { void *context; uint32_t device; } places[64];
void cupti_double_context_on(void *context, uint32_t device) {
    int n = 0;
    while (n < 63 && places[n].context && places[n].context != context) n++;
    places[n].context = context, places[n].device = device;
}
uint32_t double_device_of(void *context) {
    for (int n = 0; n < 64; n++) if (context && places[n].context == context) return places[n].device;
    return UINT32_MAX;
}
int double_tracing_kernels(void) { return anyone(KERNEL) || anyone(CONCURRENT_KERNEL); }
int cuptiGetDeviceId(void *context, uint32_t *device) {
    ANSWER;
    *device = double_device_of(context) == UINT32_MAX ? 0 : double_device_of(context);
    return SUCCESS;
}
int cuptiGetContextId(void *context, uint32_t *id) { ANSWER; if (!context) return INVALID_PARAMETER; *id = 1; return SUCCESS; }
int cuptiFinalize(void) {
    ANSWER;
    double_lock();
    double_activity_reset();
    double_callbacks_reset();
    finalizations++;
    graphs_gone |= graphs_under;
    double_unlock();
    return SUCCESS;
}
void double_subscriber_reset(int number) {
    turn = all + number;
    while (activity.first) { Pending *one = activity.first; activity.first = one->next; free(one); }
    memset(&activity, 0, sizeof activity);
    first_turn();
}
void double_activity_reset(void) {
    for (int n = 0; n < SUBSCRIBERS; n++) double_subscriber_reset(n);
    on_devices = 0, pages = 0, graphs_as_one = -1;
}
void cupti_double_reset(void) {
    static const size_t defaults[ATTRIBUTES] = {3200000, 8388608, 250, 25000, 250, 0, 3, 3, 0, 1};
    double_activity_reset();
    double_callbacks_reset();
    double_script_reset();
    double_sass_reset();
    finalizations = 0, graphs_under = 0, graphs_gone = 0;
    memcpy(attributes, defaults, sizeof attributes);
}

static void kernel(const char *name, uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end, uint32_t grid, uint32_t block,
                   uint32_t graph, uint64_t node) {
    struct {                                 /* as far as 13.5; an older release's is its beginning */
        uint32_t kind; uint8_t cache, shared; uint16_t registers; uint32_t requested, executed; uint64_t start, end, completed;
        uint32_t device, context, stream, grid[3], block[3], static_shared, dynamic_shared, local, local_total, correlation;
        uint64_t grid_id; const char *name; void *reserved; uint64_t queued, submitted; uint32_t flags, executed_shared; uint64_t node;
        uint32_t limit, graph; void *window; uint32_t channel, channel_type, cluster[3], policy; uint64_t local_total_2;
        uint32_t potential, active; uint8_t from_device, padding[7]; int32_t priority; uint32_t padding_2;
        uint64_t model, source_graph, source_node;
    } record = {.kind = anyone(CONCURRENT_KERNEL) ? CONCURRENT_KERNEL : KERNEL, .registers = 32, .start = double_stamp(start),
                .end = double_stamp(end), .completed = double_stamp(end), .context = 1, .stream = stream, .grid = {grid, 1, 1},
                .block = {block, 1, 1}, .correlation = correlation, .grid_id = correlation, .name = name, .graph = graph, .node = node,
                .channel = UINT32_MAX};
    _Static_assert(sizeof record == 248, "13.5");
    on_device(record.kind, &record, record.end);
}
void cupti_double_kernel(const char *name, uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end, uint32_t grid, uint32_t block) {
    kernel(name, correlation, stream, start, end, grid, block, 0, 0);
}
void cupti_double_memcpy(uint8_t copy_kind, uint64_t bytes, uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end) {
    struct {
        uint32_t kind; uint8_t copy_kind, from, to, flags; uint64_t bytes, start, end; uint32_t device, context, stream, correlation;
        uint32_t runtime, pad; void *reserved; uint64_t node; uint32_t graph, channel, channel_type, rest; uint64_t copies, source[2];
    } record = {.kind = MEMCPY, .copy_kind = copy_kind, .from = copy_kind == 1 ? 1 : 3, .to = copy_kind == 2 ? 1 : 3, .bytes = bytes,
                .start = double_stamp(start), .end = double_stamp(end), .context = 1, .stream = stream, .correlation = correlation};
    on_device(MEMCPY, &record, record.end);
}
void cupti_double_memset(uint64_t bytes, uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end) {
    struct {
        uint32_t kind, value; uint64_t bytes, start, end; uint32_t device, context, stream, correlation; uint16_t flags, memory; uint32_t pad;
        void *reserved; uint64_t node; uint32_t graph, channel, channel_type, rest; uint64_t source[2];
    } record = {.kind = MEMSET, .bytes = bytes, .start = double_stamp(start), .end = double_stamp(end), .context = 1, .stream = stream,
                .correlation = correlation, .memory = 3};
    on_device(MEMSET, &record, record.end);
}
void cupti_double_synchronization(uint32_t type, uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end) {
    struct {
        uint32_t kind, type; uint64_t start, end; uint32_t correlation, context, stream, event; uint64_t event_id; uint32_t result, pad;
    } record = {SYNCHRONIZATION, type, double_stamp(start), double_stamp(end), correlation, 1, stream, UINT32_MAX, 0, 0, 0};
    double_record(SYNCHRONIZATION, &record, sizeof record, record.end);
}
void cupti_double_marker(uint32_t flags, uint32_t id, const char *name, const char *domain, uint64_t time) {
    struct { uint32_t kind, flags; uint64_t time; uint32_t id, object_kind, object[3], pad; const char *name, *domain; } record = {
        MARKER, flags, double_stamp(time), id, 2, {1, 0, 0}, 0, name, domain};
    double_record(MARKER, &record, sizeof record, 0);
}
void cupti_double_graphs_now(int *whole, int *gone) {
    *whole = anyone(GRAPH_TRACE), *gone = graphs_gone;
    for (int n = 0; n < SUBSCRIBERS; n++) graphs_under |= all[n].complete || all[n].shared_complete;
}
/* A graph of two kernels: one record for the whole where that is asked for, and then none of its kernels. */
void cupti_double_graph(uint32_t graph, uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end) {
    if (!anyone(GRAPH_TRACE)) {
        kernel("graph_node_1", correlation, stream, start, (start + end) / 2, 1, 128, graph, 1);
        kernel("graph_node_2", correlation, stream, (start + end) / 2, end, 1, 128, graph, 2);
        return;
    }
    struct {
        uint32_t kind, correlation; uint64_t start, end; uint32_t device, graph, context, stream; void *reserved; uint32_t end_device, end_context;
    } record = {GRAPH_TRACE, correlation, double_stamp(start), double_stamp(end), 0, graph, 1, stream, NULL, 0, 1};
    on_device(GRAPH_TRACE, &record, record.end);
}
/* Pages of unified memory that moved: told if that counter was configured before. */
void cupti_double_pages(uint32_t counter, uint64_t bytes, uint32_t from, uint32_t to, uint64_t start, uint64_t end) {
    struct {
        uint32_t kind, counter; uint64_t value, start, end, address; uint32_t source, destination, stream, process, flags, padding; uint64_t processors[5];
    } record = {PAGES, counter, bytes, double_stamp(start), double_stamp(end), 0x7f0000000000, from, to, 0, (uint32_t)getpid(), 0, 0, {0}};
    if (pages & 1u << counter) double_record(PAGES, &record, size_of(PAGES), record.end);
}
void cupti_double_device(uint32_t device, const char *name) {
    union { unsigned char bytes[192]; uint32_t words[48]; const char *names[24]; } record = {.words = {DEVICE}};
    record.words[11] = 132;                  /* numMultiprocessors */
    record.words[26] = 9;                    /* computeCapabilityMajor */
    record.words[28] = device;
    memset(record.bytes + 120, (int)device + 1, 16); /* uuid */
    record.names[17] = name;
    record.bytes[144] = 1;                   /* isCudaVisible */
    double_lock();
    record_in_turn(DEVICE, &record, size_of(DEVICE), 0);
    double_unlock();
}
void cupti_double_context(uint32_t context, uint32_t device) {
    struct { uint32_t kind, context, device; uint16_t api, null_stream; uint32_t rest[6]; } record = {CONTEXT, context, device, 1, 7, {0}};
    double_record(CONTEXT, &record, size_of(CONTEXT), 0);
}
/* A record of a kind that no release knows, put where it happens, whatever is enabled. */
void cupti_double_unknown(uint32_t kind, size_t size) {
    unsigned char record[LONGEST] = {0};
    memcpy(record, &kind, sizeof kind);
    double_lock();
    if (callbacks_there()) put(record, size);
    double_unlock();
}
uint32_t cupti_double_finalized(void) { return finalizations; }
