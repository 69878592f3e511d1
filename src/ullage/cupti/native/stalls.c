/* Sampled program counters, where ULLAGE_STALLS asks for them: where warps were and why they did not issue, by CUPTI's PC sampling. It
 * takes the place of tracing, as counting does: recording activity beside it would change what is sampled.
 *
 * ULLAGE_STALLS is the period, 5 to 31 (a sample every 2**period cycles), or 0 for CUPTI's own choice; ULLAGE_CUBINS how many bytes of
 * machine code are kept. Sampling begins in the callback that tells of a new context, as in NVIDIA's own injected sampler, and goes on
 * until the context's end or the program's. It is not started and stopped: what is between a start and a stop can only be read when it
 * has ended (cupti_pcsampling.h), and a program that is killed would leave nothing.
 *
 * Read is by the thread that flushes, before a module goes (another may come to its place), and at a context's end. A reading that met a
 * module being unloaded has crashed programs: so a module waits for a reading to end, though not for long, as a reading may need a lock
 * of the driver's that the module's thread has. A new context waits longer, as otherwise all of it would be missing. */
#define _GNU_SOURCE
#include "cupti_interface.h"
#include "recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SESSIONS = 16, ROOM_PCS = 4096, REASONS = 4096, NAME_SIZE = 128, ROUNDS = 1024, PATIENCE = 1000 /* ms */ };
enum { OUT_OF_MEMORY = 8, CONTINUOUS = 1, PARSED = 1, CORRELATED = 22 /* cuptiGetVersion of CUDA 12.4 */ };
enum { MODULE_LOADED = 6, MODULE_LEAVING = 7 };
enum { PERIOD = 1, MODE = 5, RANGES = 6, FORMAT = 7, BUFFER_AT_END = 8 }; /* CUpti_PCSamplingConfigurationAttributeType */
enum { MODULES = 1 << 16, LARGEST = 256 << 20, KEPT = 512 << 20 };       /* modules; bytes of one, and of all unless told */

/* The structures of cupti_pcsampling.h, the same from release 12.0 to 13.5 but for `record`, which is 8 bytes shorter before 12.4. */
struct count { uint32_t reason, samples; };
struct record_12_4 {
    size_t size;
    uint64_t cubin, pc;
    uint32_t function_index, unused;
    char *function; /* CUPTI's, and shared among records: not freed */
    size_t reason_count;
    struct count *reasons;
    uint32_t correlation, unused_2;
};
struct data {
    size_t size, room;
    uint64_t total, dropped;
    size_t count, remaining;
    uint64_t range;
    uint8_t *records;
    uint64_t other;
    uint8_t full;
};
struct context_parameters { size_t size; void *none; CUcontext context; };
struct pointer_parameters { size_t size; void *none; CUcontext context; void *pointer; };
struct reason_parameters { size_t size; void *none; CUcontext context; size_t count; uint32_t *indices; char **names; };
struct attribute { int type, answer; union { uint64_t bytes[3]; uint32_t word; void *pointer; } value; };
struct configuration { size_t size; void *none; CUcontext context; size_t count; struct attribute *attributes; };
struct crc_parameters { size_t size, length; const void *cubin; uint64_t crc; };
_Static_assert(sizeof(struct record_12_4) == 64 && sizeof(struct data) == 80 && sizeof(struct attribute) == 32, "as in the header");

/* CUpti_ResourceData and CUpti_ModuleResourceData */
struct resource { CUcontext context; void *stream; const struct module *module; };
struct module { uint32_t id; size_t size; const void *cubin; };

struct sample { /* SAMPLE of chunks.py */
    uint64_t cubin, pc;
    uint32_t function, function_index, correlation, reason;
    uint64_t samples;
};
_Static_assert(sizeof(struct sample) == 40, "as in chunks.py");

#define SAMPLING_FUNCTIONS(X)                                                                                              \
    X(cuptiPCSamplingEnable) X(cuptiPCSamplingDisable) X(cuptiPCSamplingGetNumStallReasons) X(cuptiPCSamplingGetStallReasons) \
    X(cuptiPCSamplingSetConfigurationAttribute) X(cuptiPCSamplingGetConfigurationAttribute) X(cuptiPCSamplingGetData)        \
    X(cuptiGetCubinCrc)
#define DECLARED(name) static int (*name)(void *);
SAMPLING_FUNCTIONS(DECLARED)
static int (*cuptiEnableCallback)(uint32_t, Subscriber, int, uint32_t);
static int (*cuptiGetDeviceId)(CUcontext, uint32_t *);
static int (*cuptiGetVersion)(uint32_t *);

struct room { struct data data; uint8_t *records; struct count *counts; }; /* what CUPTI writes to */
static struct session {
    CUcontext context; /* NULL: not used */
    _Atomic bool on, gone; /* sampled; its context went while it was being read */
    uint32_t number, device;
    size_t reason_count;
    struct room now, last; /* of a reading; of the end, and of modules that went */
} sessions[SESSIONS];
static struct { uint64_t crcs[MODULES], bytes, most; size_t count; } kept;
static size_t record_size;
static uint32_t period, contexts;
static _Atomic uint64_t unread; /* modules that went before their samples were read, not yet told */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool running;
static _Thread_local bool inside; /* CUPTI may call CUDA, and so us, while we call it */

static bool ask(const char *name, int (*function)(void *), void *parameters) {
    int answer = function ? function(parameters) : ABSENT;
    if (answer) problem(name, answer, "sampling program counters");
    return !answer;
}
#define ASK(name, parameters) ask(#name, name, parameters)

static bool take(uint64_t milliseconds) {
    if (!lock_within(&lock, milliseconds)) return false;
    return inside = true;
}

static void give(void) {
    inside = false;
    pthread_mutex_unlock(&lock);
}

/* --- rooms --- */

static bool made(struct room *room, size_t reasons) {
    room->records = calloc(ROOM_PCS, record_size);
    room->counts = calloc(ROOM_PCS * reasons, sizeof *room->counts);
    return room->records && room->counts;
}

/* CUPTI wants each record's size and its place for counts before each reading, and knows the address of `data` of the last one. */
static void clear(struct room *room, size_t reasons) {
    memset(room->records, 0, ROOM_PCS * record_size);
    memset(room->counts, 0, ROOM_PCS * reasons * sizeof *room->counts);
    for (size_t i = 0; i < ROOM_PCS; i++) {
        struct record_12_4 *record = (struct record_12_4 *)(room->records + i * record_size);
        record->size = record_size, record->reasons = room->counts + i * reasons;
    }
    room->data = (struct data){.size = sizeof(struct data), .room = ROOM_PCS, .records = room->records};
}

static void discard(struct room *room) {
    free(room->records), free(room->counts);
    *room = (struct room){0};
}

/* --- what was sampled, as a chunk: u32 length, JSON of that length, padding, then records of `sample` --- */

static void add_pc(struct text *rows, const struct record_12_4 *record, size_t reasons) {
    struct sample row = {record->cubin, record->pc, name_number(record->function), record->function_index, 0, 0, 0};
    if (record_size == sizeof *record) row.correlation = record->correlation;
    for (size_t i = 0; i < record->reason_count && i < reasons; i++) {
        row.reason = record->reasons[i].reason, row.samples = record->reasons[i].samples;
        if (row.samples) text_bytes(rows, &row, sizeof row);
    }
}

static bool write_chunk(struct text *json, struct text *rows) {
    static const char padding[8];
    uint32_t length = (uint32_t)json->length;
    struct iovec parts[4] = {{&length, sizeof length}, {json->at, json->length}, {(void *)padding, -(sizeof length + json->length) % 8},
                             {rows->at, rows->length}};
    bool written = !json->failed && !rows->failed && recording_lock();
    if (written) {
        written = recording_open() && names_write() && recording_add(SAMPLES, 0, parts, 4);
        recording_unlock();
    }
    if (!written) problem("samples", ABSENT, "could not be written");
    text_free(json), text_free(rows);
    return written;
}

/* What one filling of a room tells; nothing where that is nothing. */
static void write_room(struct session *session, const struct room *room, bool full) {
    const struct data *data = &room->data;
    struct text json = {0}, rows = {0};
    size_t count = data->count < ROOM_PCS ? data->count : ROOM_PCS;
    if (!count && !data->total && !data->dropped && !full && !unread) return;
    for (size_t i = 0; i < count; i++)
        add_pc(&rows, (const struct record_12_4 *)(room->records + i * record_size), session->reason_count);
    text_add(&json, "{\"context\": %u, \"range\": %llu, \"total\": %llu, \"dropped\": %llu, \"other\": %llu, \"full\": %d, \"unread\": %llu}",
             session->number, (unsigned long long)data->range, (unsigned long long)data->total, (unsigned long long)data->dropped,
             (unsigned long long)data->other, full, (unsigned long long)unread);
    if (write_chunk(&json, &rows)) unread = 0;
}

static void write_reasons(const struct session *session, const uint32_t *indices, char *const *names, uint32_t cycles_power) {
    struct text json = {0}, none = {0};
    text_add(&json, "{\"context\": %u, \"device\": %u, \"mode\": \"continuous\", ", session->number, session->device);
    if (cycles_power) text_add(&json, "\"cycles\": %llu, ", 1ull << cycles_power);
    text_add(&json, "\"reasons\": {");
    for (size_t i = 0; i < session->reason_count; i++)
        text_add(&json, "%s\"%u\": ", i ? ", " : "", indices[i]), text_quoted(&json, names[i]);
    text_add(&json, "}}");
    write_chunk(&json, &none);
}

/* --- reading --- */

/* Never synchronises the device: there is what CUPTI's own threads have decoded until now. */
static void drain(struct session *session) {
    struct room *room = &session->now;
    bool more = true;
    for (int round = 0; more && round < ROUNDS && !atomic_load(&session->gone); round++) {
        clear(room, session->reason_count);
        struct pointer_parameters get = {sizeof get, NULL, session->context, &room->data};
        int answer = cuptiPCSamplingGetData(&get);
        if (answer && answer != OUT_OF_MEMORY) return problem("cuptiPCSamplingGetData", answer, "sampling program counters");
        bool full = answer == OUT_OF_MEMORY || room->data.full;
        write_room(session, room, full);
        more = !full && room->data.remaining && room->data.count;
    }
}

/* What CUPTI put into the room of the end by itself, when modules went. */
static void take_last(struct session *session) {
    if (!session->last.data.count) return;
    write_room(session, &session->last, false);
    clear(&session->last, session->reason_count);
}

static void end(struct session *session) {
    struct context_parameters disable = {sizeof disable, NULL, session->context};
    if (!atomic_exchange(&session->on, false)) return;
    take_last(session), drain(session);
    if (ASK(cuptiPCSamplingDisable, &disable)) write_room(session, &session->last, session->last.data.full);
    discard(&session->now), discard(&session->last);
}

/* Its context is gone, and CUPTI's sampling of it with it: nothing is asked of it any more. */
static void forget(struct session *session) {
    discard(&session->now); /* not the last room: CUPTI was told of it */
    *session = (struct session){0};
}

/* --- a new context --- */

static bool configured(struct session *session) {
    struct attribute attributes[] = {{MODE, 0, {{0}}}, {RANGES, 0, {{0}}}, {FORMAT, 0, {{0}}}, {BUFFER_AT_END, 0, {{0}}}, {PERIOD, 0, {{0}}}};
    attributes[0].value.word = CONTINUOUS, attributes[2].value.word = PARSED, attributes[4].value.word = period;
    attributes[3].value.pointer = &session->last.data;
    size_t count = sizeof attributes / sizeof *attributes - !period;
    struct configuration set = {sizeof set, NULL, session->context, count, attributes};
    return ASK(cuptiPCSamplingSetConfigurationAttribute, &set);
}

static uint32_t told_period(const struct session *session) {
    struct attribute asked = {PERIOD, 0, {{0}}};
    struct configuration get = {sizeof get, NULL, session->context, 1, &asked};
    bool told = cuptiPCSamplingGetConfigurationAttribute && !cuptiPCSamplingGetConfigurationAttribute(&get) && asked.value.word < 32;
    return told ? asked.value.word : period;
}

/* Ask for the chip's reasons, make room for them, configure, and tell what they are. */
static bool prepared(struct session *session, uint32_t *indices, char **names, char *texts) {
    for (size_t i = 0; i < session->reason_count; i++) names[i] = texts + i * NAME_SIZE;
    struct reason_parameters get = {sizeof get, NULL, session->context, session->reason_count, indices, names};
    if (!ASK(cuptiPCSamplingGetStallReasons, &get)) return false;
    for (size_t i = 0; i < session->reason_count; i++) names[i][NAME_SIZE - 1] = 0;
    if (!made(&session->now, session->reason_count) || !made(&session->last, session->reason_count))
        return problem("sampling program counters", ENOMEM, "room for samples"), false;
    clear(&session->last, session->reason_count);
    if (!configured(session)) return false;
    write_reasons(session, indices, names, told_period(session));
    return true;
}

static bool with_reasons(struct session *session) {
    struct pointer_parameters get = {sizeof get, NULL, session->context, &session->reason_count};
    if (!ASK(cuptiPCSamplingGetNumStallReasons, &get)) return false;
    size_t count = session->reason_count;
    if (!count || count > REASONS) return problem("cuptiPCSamplingGetNumStallReasons", ERANGE, "an unlikely number"), false;
    uint32_t *indices = calloc(count, sizeof *indices);
    char **names = calloc(count, sizeof *names), *texts = calloc(count, NAME_SIZE);
    bool well = indices && names && texts && prepared(session, indices, names, texts);
    free(indices), free(names), free(texts);
    return well;
}

/* CUPTI samples one context of a GPU at a time (guide, 2.10.7). */
static struct session *unused(CUcontext context, uint32_t device) {
    struct session *found = NULL;
    for (struct session *session = sessions; session < sessions + SESSIONS; session++) {
        if (session->context == context) return NULL;
        if (session->context && atomic_load(&session->on) && !atomic_load(&session->gone) && session->device == device)
            return problem("a second context", ABSENT, "one context of a GPU is sampled at a time"), NULL;
        if (!session->context && !found) found = session;
    }
    if (!found) problem("a second context", E2BIG, "more than 16 live at once");
    return found;
}

static void begin(CUcontext context) {
    uint32_t device = contexts;
    if (cuptiGetDeviceId && cuptiGetDeviceId(context, &device)) device = contexts; /* not told: each by itself */
    struct session *session = unused(context, device);
    if (!session) return;
    struct context_parameters enable = {sizeof enable, NULL, context};
    *session = (struct session){.context = context, .device = device, .number = contexts++};
    if (!ASK(cuptiPCSamplingEnable, &enable)) return;
    if (with_reasons(session)) return atomic_store(&session->on, true);
    ASK(cuptiPCSamplingDisable, &enable);
    discard(&session->now), discard(&session->last);
}

/* --- machine code --- */

static bool is_kept(uint64_t crc) {
    for (size_t i = 0; i < kept.count; i++)
        if (kept.crcs[i] == crc) return true;
    return false;
}

/* It is valid only while CUPTI tells of it: so it goes to the file at once, each once. */
static void keep(const struct module *module) {
    if (!module || !module->cubin || !module->size) return;
    if (kept.count == MODULES || module->size > LARGEST || kept.bytes + module->size > kept.most)
        return problem("keeping machine code", E2BIG, "it is more than is kept: ULLAGE_CUBINS says how many bytes are");
    struct crc_parameters name = {sizeof name, module->size, module->cubin, 0};
    if (!ASK(cuptiGetCubinCrc, &name) || is_kept(name.crc)) return;
    struct iovec parts[2] = {{&name.crc, sizeof name.crc}, {(void *)module->cubin, module->size}};
    if (!recording_lock()) return problem("keeping machine code", EBUSY, "");
    bool written = recording_open() && recording_add(CUBIN, 0, parts, 2);
    recording_unlock();
    if (written) kept.crcs[kept.count++] = name.crc, kept.bytes += module->size;
}

/* --- what CUPTI tells --- */

static struct session *of(CUcontext context) {
    for (struct session *session = sessions; session < sessions + SESSIONS; session++)
        if (session->context == context) return session;
    return NULL;
}

static void happened(uint32_t id, const struct resource *resource) {
    struct session *session = of(resource->context);
    if (id == CONTEXT_CREATED && !session) begin(resource->context);
    else if (id == CONTEXT_LEAVING && session) end(session), session->context = NULL;
    else if (id == MODULE_LOADED) keep(resource->module);
    if (id != MODULE_LOADED && id != MODULE_LEAVING) return;
    for (session = sessions; session < sessions + SESSIONS; session++)
        if (atomic_load(&session->on) && !atomic_load(&session->gone)) id == MODULE_LEAVING ? drain(session) : take_last(session);
}

/* Where a reading is under way for long what was missed is said, and its context isn't touched again: to read one that is gone may crash. */
static void not_waited_for(uint32_t id, CUcontext context) {
    struct session *session = of(context);
    if (id == MODULE_LEAVING) unread++;
    if (id == CONTEXT_CREATED) problem("a second context", EBUSY, "one came while another was being read");
    if (id == MODULE_LOADED) problem("keeping machine code", EBUSY, "some was loaded while samples were being read");
    if (id == CONTEXT_LEAVING && session) atomic_store(&session->gone, true), problem("a context's last samples", EBUSY, "");
}

void stalls_called(int domain, uint32_t id, const void *data) {
    const struct resource *resource = domain == DOMAIN_RESOURCE ? data : NULL;
    if (!resource || !resource->context || inside || !atomic_load(&running)) return;
    if (!take(id == CONTEXT_CREATED ? settings.deadline : PATIENCE)) return not_waited_for(id, resource->context);
    happened(id, resource);
    give();
}

/* --- coming and going --- */

bool stalls_wanted(void) {
    const char *asked = getenv("ULLAGE_STALLS");
    return asked && *asked;
}

static int enable_callbacks(Subscriber subscriber) {
    static const uint32_t told[] = {CONTEXT_CREATED, CONTEXT_LEAVING, MODULE_LOADED, MODULE_LEAVING};
    int answer = 0;
    for (size_t i = 0; i < sizeof told / sizeof *told && !answer; i++)
        answer = cuptiEnableCallback(1, subscriber, DOMAIN_RESOURCE, told[i]);
    return answer;
}

static void read_settings(void) {
    const char *bytes = getenv("ULLAGE_CUBINS");
    uint32_t version = 0;
    period = (uint32_t)strtoul(getenv("ULLAGE_STALLS"), NULL, 10);
    kept.most = bytes && *bytes ? strtoull(bytes, NULL, 10) : KEPT;
    kept.bytes = kept.count = 0;
    if (cuptiGetVersion) cuptiGetVersion(&version);
    record_size = version >= CORRELATED ? sizeof(struct record_12_4) : offsetof(struct record_12_4, correlation);
}

bool stalls_start(void *library, void *subscriber) {
    SAMPLING_FUNCTIONS(LOOKED_UP)
    LOOKED_UP(cuptiEnableCallback) LOOKED_UP(cuptiGetDeviceId) LOOKED_UP(cuptiGetVersion)
    if (!cuptiEnableCallback || !subscriber || !cuptiPCSamplingGetData)
        return problem("cuptiPCSamplingGetData", ABSENT, "sampling program counters"), false;
    read_settings();
    perfworks_load((const void *)cuptiEnableCallback);
    int answer = enable_callbacks(subscriber);
    if (answer) problem("cuptiEnableCallback", answer, "sampling program counters");
    atomic_store(&running, !answer);
    return !answer;
}

/* By a thread that may wait: at the end CUPTI may be half gone, and whoever asks for this waits with a deadline. */
void stalls_flush(bool ending) {
    if (ending ? !atomic_exchange(&running, false) : !atomic_load(&running)) return;
    pthread_mutex_lock(&lock);
    inside = true;
    for (struct session *session = sessions; session < sessions + SESSIONS; session++) {
        if (atomic_load(&session->gone)) forget(session);
        else if (atomic_load(&session->on)) ending ? end(session) : drain(session);
    }
    give();
}

/* In the child of a fork CUPTI's calls are the parent's business; a child that begins CUDA itself begins anew. */
void stalls_forked(void) {
    pthread_mutex_init(&lock, NULL);
    atomic_store(&running, false);
    inside = false;
    memset(sessions, 0, sizeof sessions);
    contexts = 0, unread = 0;
}
