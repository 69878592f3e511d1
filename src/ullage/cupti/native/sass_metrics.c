/* Executed instructions of each kernel, where ULLAGE_SASS asks for them: CUPTI's SASS metrics, which it counts by code that it adds to the
 * kernels' own. Each kernel runs once, longer than it would. It takes the place of tracing: such kernels have no times worth having.
 *
 * ULLAGE_SASS names the metrics, with commas between; those that the chip does not have are left out, and told. Counting starts when a
 * context's first launch begins, as counters do, and is read at the context's end or the program's: a program that is killed leaves
 * nothing. What was counted is added up by kernel here, so that it takes no more room however long the program runs. */
#define _GNU_SOURCE
#include "cupti_interface.h"
#include "recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { METRICS = 32, SESSIONS = 16, RECORDS = 1 << 20, KERNELS = 1 << 20, WHOLE_GPU = 0 };

/* The parameters of cupti_sass_metrics.h, the same from release 12.5 to 13.5. `size` counts up to the last member that the header's own
 * macro names: of `flush` that is the one before the last. */
struct chip_name { size_t size; void *none; size_t device; const char *chip; };
struct details { uint64_t id; const char *name, *words; };
struct properties { size_t size; void *none; const char *chip, *name; struct details metric; };
struct metric { uint64_t id; uint8_t granularity; };
struct configure { size_t size; void *none; size_t count; struct metric *metrics; uint32_t device; };
struct unset { size_t size; void *none; uint32_t device; };
struct enable { size_t size; void *none; CUcontext context; uint8_t lazily; };
struct disable { size_t size; void *none; CUcontext context; size_t dropped; };
struct amounts { size_t size; void *none; CUcontext context; size_t records, instances; };
struct value { uint64_t id, value; };
struct instruction { size_t size; void *none; uint32_t cubin, function_index; const char *function; uint32_t pc; struct value *values; };
struct flush { size_t size; void *none; CUcontext context; size_t records, instances; struct instruction *data; };
struct none { size_t size; void *none; };
_Static_assert(sizeof(struct instruction) == 48 && sizeof(struct metric) == 16, "as in the header");

#define SASS_FUNCTIONS(X)                                                                                                            \
    X(cuptiProfilerInitialize) X(cuptiDeviceGetChipName) X(cuptiSassMetricsGetProperties) X(cuptiSassMetricsSetConfig)               \
    X(cuptiSassMetricsUnsetConfig) X(cuptiSassMetricsEnable) X(cuptiSassMetricsDisable) X(cuptiSassMetricsGetDataProperties)         \
    X(cuptiSassMetricsFlushData)
#define DECLARED(name) static int (*name)(void *);
SASS_FUNCTIONS(DECLARED)
static int (*cuptiGetDeviceId)(CUcontext, uint32_t *);

struct kernel { uint64_t launches, values[METRICS]; };
static struct session {
    CUcontext context; /* NULL: not used */
    bool on;
    uint32_t device, number;
    const char *chip;
    size_t metric_count, lacking_count;
    struct metric metrics[METRICS];
    const char *names[METRICS], *lacking[METRICS];
    struct kernel *kernels; /* by the numbers of their names */
    size_t kernel_room;
} sessions[SESSIONS];
static char *asked; /* the metrics' names, each with a 0 behind it */
static size_t asked_size;
static uint32_t contexts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool running;
static _Thread_local bool inside; /* CUPTI may call CUDA, and so us, while we call it */

static bool ask(const char *name, int (*function)(void *), void *parameters) {
    int answer = function ? function(parameters) : ABSENT;
    if (answer) problem(name, answer, "counting instructions");
    return !answer;
}
#define ASK(name, parameters) ask(#name, name, parameters)

static struct kernel *kernel_of(struct session *session, const char *name) {
    size_t number = name_number(name), room = session->kernel_room;
    if (number >= KERNELS) return NULL;
    if (number >= room) {
        struct kernel *grown = realloc(session->kernels, 2 * (number + 1) * sizeof *grown);
        if (!grown) return NULL;
        session->kernels = grown, session->kernel_room = 2 * (number + 1);
        memset(grown + room, 0, (session->kernel_room - room) * sizeof *grown);
    }
    return session->kernels + number;
}

/* --- a new context --- */

static bool device_is_set(const struct session *mine) {
    for (struct session *session = sessions; session < sessions + SESSIONS; session++)
        if (session != mine && session->context && session->on && session->device == mine->device) return true;
    return false;
}

static bool found_metrics(struct session *session) {
    struct chip_name chip = {SIZE(chip_name, chip), NULL, session->device, NULL};
    if (!ASK(cuptiDeviceGetChipName, &chip)) return false;
    session->chip = chip.chip;
    int answer = 0;
    for (const char *name = asked; name < asked + asked_size && session->metric_count + session->lacking_count < METRICS; name += strlen(name) + 1) {
        struct properties get = {SIZE(properties, metric), NULL, chip.chip, name, {0, NULL, NULL}};
        answer = cuptiSassMetricsGetProperties ? cuptiSassMetricsGetProperties(&get) : ABSENT;
        if (answer) {
            session->lacking[session->lacking_count++] = name;
            continue;
        }
        session->names[session->metric_count] = name;
        session->metrics[session->metric_count++] = (struct metric){get.metric.id, WHOLE_GPU};
    }
    if (!session->metric_count) problem("cuptiSassMetricsGetProperties", answer, "counting instructions");
    return session->metric_count;
}

/* A device is configured once, however many contexts it has. */
static bool enable_counting(struct session *session) {
    struct configure set = {SIZE(configure, device), NULL, session->metric_count, session->metrics, session->device};
    struct unset unset = {SIZE(unset, device), NULL, session->device};
    struct enable enable = {SIZE(enable, lazily), NULL, session->context, true};
    bool alone = !device_is_set(session);
    if (alone && !ASK(cuptiSassMetricsSetConfig, &set)) return false;
    if (ASK(cuptiSassMetricsEnable, &enable)) return true;
    if (alone) ASK(cuptiSassMetricsUnsetConfig, &unset);
    return false;
}

/* Once a context: one that was refused stays as it is. */
static void begin_session(CUcontext context) {
    struct session *session = NULL;
    for (struct session *other = sessions; other < sessions + SESSIONS; other++) {
        if (other->context == context) return;
        if (!session && !other->context) session = other;
    }
    if (!session) return problem("counting every context", E2BIG, "more than 16 live at once");
    *session = (struct session){.context = context, .number = contexts++};
    if (cuptiGetDeviceId) cuptiGetDeviceId(context, &session->device);
    session->on = found_metrics(session) && enable_counting(session);
}

/* --- what was counted --- */

static void add_up(struct session *session, const struct instruction *record, size_t values) {
    struct kernel *kernel = kernel_of(session, record->function ? record->function : "(no name)");
    for (size_t i = 0; kernel && i < values; i++)
        for (size_t metric = 0; metric < session->metric_count; metric++)
            if (record->values[i].id == session->metrics[metric].id) kernel->values[metric] += record->values[i].value;
}

/* Each record is an instruction; it has a value for each metric and instance. */
static bool read_counts(struct session *session) {
    struct amounts told = {SIZE(amounts, instances), NULL, session->context, 0, 0};
    if (!ASK(cuptiSassMetricsGetDataProperties, &told) || !told.records || !told.instances) return false;
    size_t each = told.instances * session->metric_count;
    if (told.records > RECORDS || each > RECORDS / told.records * METRICS)
        return problem("counting instructions", E2BIG, "more of them than can be read"), false;
    struct instruction *records = calloc(told.records, sizeof *records);
    struct value *values = calloc(told.records * each, sizeof *values);
    struct flush flush = {SIZE(flush, instances), NULL, session->context, told.records, told.instances, records};
    for (size_t i = 0; records && values && i < told.records; i++)
        records[i].size = SIZE(flush, instances), records[i].values = values + i * each; /* the size that the header asks for */
    bool read = records && values && ASK(cuptiSassMetricsFlushData, &flush);
    for (size_t i = 0; read && i < told.records; i++) add_up(session, records + i, each);
    free(records), free(values);
    return read;
}

static void add_names(struct text *json, const char *key, const char *const *names, size_t count) {
    text_add(json, "\"%s\": [", key);
    for (size_t i = 0; i < count; i++) text_add(json, i ? ", " : ""), text_quoted(json, names[i]);
    text_add(json, "], ");
}

static void write_kernels(struct session *session, size_t dropped) {
    struct text json = {0};
    text_add(&json, "{\"context\": %u, \"device\": %u, \"chip\": ", session->number, session->device);
    text_quoted(&json, session->chip ? session->chip : "");
    text_add(&json, ", \"dropped\": %zu, ", dropped);
    add_names(&json, "metrics", session->names, session->metric_count);
    add_names(&json, "lacking", session->lacking, session->lacking_count);
    text_add(&json, "\"kernels\": [");
    const char *comma = "";
    for (size_t number = 0; number < session->kernel_room; number++) {
        const struct kernel *kernel = session->kernels + number;
        bool some = kernel->launches;
        for (size_t i = 0; i < session->metric_count; i++) some |= kernel->values[i] != 0;
        if (!some) continue;
        text_add(&json, "%s[%zu, %llu", comma, number, (unsigned long long)kernel->launches), comma = ", ";
        for (size_t i = 0; i < session->metric_count; i++) text_add(&json, ", %llu", (unsigned long long)kernel->values[i]);
        text_add(&json, "]");
    }
    text_add(&json, "]}");
    struct iovec part = {json.at, json.length};
    if (!json.failed && recording_lock()) {
        if (recording_open()) names_write(), recording_add(SASS, 0, &part, 1);
        recording_unlock();
    }
    text_free(&json);
}

static void end_session(struct session *session) {
    struct disable disable = {SIZE(disable, dropped), NULL, session->context, 0};
    struct unset unset = {SIZE(unset, device), NULL, session->device};
    if (!session->on) return;
    bool read = read_counts(session);
    bool over = ASK(cuptiSassMetricsDisable, &disable);
    session->on = false;
    if (over && !device_is_set(session)) ASK(cuptiSassMetricsUnsetConfig, &unset);
    if (!read) session->metric_count = 0; /* what was not read is not known: no count is 0 for that */
    if (read || session->kernels) write_kernels(session, disable.dropped);
    free(session->kernels);
    session->kernels = NULL, session->kernel_room = 0;
}

/* --- what CUPTI tells --- */

static struct session *session_of(CUcontext context) {
    for (struct session *session = sessions; session < sessions + SESSIONS; session++)
        if (session->context == context) return session;
    return NULL;
}

static void launched(const struct call_data *call) {
    begin_session(call->context);
    struct session *session = session_of(call->context);
    struct kernel *kernel = session && session->on && call->symbol ? kernel_of(session, call->symbol) : NULL;
    if (kernel) kernel->launches++;
}

void sass_called(int domain, uint32_t id, const void *data) {
    const struct call_data *call = domain == DOMAIN_DRIVER ? data : NULL;
    CUcontext gone = domain == DOMAIN_RESOURCE && id == CONTEXT_LEAVING ? *(CUcontext const *)data : NULL;
    if (!atomic_load(&running) || inside || !(gone || (call && call->context && call->site == SITE_ENTER))) return;
    pthread_mutex_lock(&lock);
    inside = true;
    struct session *session = gone ? session_of(gone) : NULL;
    if (session) end_session(session), session->context = NULL;
    if (call) launched(call);
    inside = false;
    pthread_mutex_unlock(&lock);
}

/* --- coming and going --- */

bool sass_wanted(void) {
    const char *names = getenv("ULLAGE_SASS");
    return names && *names;
}

static bool read_settings(void) {
    free(asked);
    asked = strdup(getenv("ULLAGE_SASS"));
    asked_size = asked ? strlen(asked) : 0;
    for (char *comma = asked; comma && (comma = strchr(comma, ',')); *comma++ = 0) continue;
    return asked;
}

bool sass_start(void *library, void *subscriber) {
    static const uint32_t launches[] = {KERNEL_LAUNCHES};
    struct none initialize = {sizeof initialize, NULL};
    SASS_FUNCTIONS(LOOKED_UP)
    LOOKED_UP(cuptiGetDeviceId)
    if (!cuptiSassMetricsFlushData) return problem("cuptiSassMetricsFlushData", ABSENT, "counting instructions"), false;
    if (!subscriber || !read_settings()) return problem("cuptiSubscribe", ABSENT, "counting instructions"), false;
    perfworks_load((const void *)cuptiSassMetricsFlushData);
    ASK(cuptiProfilerInitialize, &initialize);
    int answer = cupti_call_back_for(DOMAIN_RESOURCE, CONTEXT_LEAVING);
    for (size_t i = 0; !answer && i < sizeof launches / sizeof *launches; i++) answer = cupti_call_back_for(DOMAIN_DRIVER, launches[i]);
    if (answer) return problem("counting instructions", answer, "CUPTI refused to say when kernels are launched"), false;
    atomic_store(&running, true);
    return true;
}

/* At the end: CUPTI may be half gone, so whoever calls this waits for it with a deadline. */
void sass_finish(void) {
    if (!atomic_exchange(&running, false)) return;
    pthread_mutex_lock(&lock);
    inside = true;
    for (struct session *session = sessions; session < sessions + SESSIONS; session++) end_session(session);
    inside = false;
    pthread_mutex_unlock(&lock);
}

void sass_forked(void) {
    pthread_mutex_init(&lock, NULL);
    atomic_store(&running, false);
    inside = false;
    memset(sessions, 0, sizeof sessions);
}
