/* Counters of each kernel, where ULLAGE_COUNTERS asks for them: CUPTI's range profiler with a range around every launch, which it runs
 * as often as the counters need passes (kernel replay). It takes the place of tracing: replayed kernels have no times worth having.
 *
 * ULLAGE_COUNTERS names a plan, made by the parent, who knows the chip: lines "ULLAGE PLAN 2", "chip NAME", "version N" (CUPTI's),
 * "ranges N" (launches of a context that are counted, the first), "level N" (the first level of nesting), "config BYTES", "metric NAME"
 * …, an empty line, then the config image. What was counted becomes an IMAGE, whose ranges are numbers of NAMES: the kernels.
 *
 * Counting starts when a context's first launch begins, as in NVIDIA's sample of an injected profiler: in the callback that tells of a
 * new context that context is not complete, and may be locked. */
#define _GNU_SOURCE
#include "cupti_interface.h"
#include "recorder.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { METRICS = 512, SESSIONS = 16, RANGES = 100000, AUTO_RANGE = 1, KERNEL_REPLAY = 2, CONFIG = 64 << 20 };
enum { DEVICE_LEVEL_SINCE = 130100 };
static const uint32_t launches[] = {KERNEL_LAUNCHES}; /* a graph counts as one range */

/* The parameters of the range profiler's calls (cupti_range_profiler.h), the same from release 12.6 to 13.5: `size` counts up to the
 * last member here, which is how a structure says which release it is of. */
struct head { size_t size; void *none; };
struct availability { struct head head; CUcontext context; size_t size; uint8_t *image, device_level; }; /* the last since 13.1 */
struct enable { struct head head; CUcontext context; void *object; };
struct object { struct head head; void *object; };
struct data_size { struct head head; void *object; const char **metrics; size_t metric_count, ranges; uint32_t nodes; size_t size; };
struct initialize { struct head head; void *object; size_t size; uint8_t *image; };
struct configure {
    struct head head;
    void *object;
    size_t config_size;
    const uint8_t *config;
    size_t image_size;
    uint8_t *image;
    int range, replay;
    size_t ranges;
    uint16_t levels, least_level;
    size_t pass;
    uint16_t target_level;
};
struct stop { struct head head; void *object; size_t pass, level; uint8_t submitted; };
struct decode { struct head head; void *object; size_t dropped; };

#define RANGE_FUNCTIONS(X)                                                                                                          \
    X(cuptiProfilerInitialize) X(cuptiProfilerGetCounterAvailability) X(cuptiRangeProfilerEnable) X(cuptiRangeProfilerDisable)      \
    X(cuptiRangeProfilerGetCounterDataSize) X(cuptiRangeProfilerCounterDataImageInitialize) X(cuptiRangeProfilerSetConfig)          \
    X(cuptiRangeProfilerStart) X(cuptiRangeProfilerStop) X(cuptiRangeProfilerDecodeData)
#define DECLARED(name) static int (*name)(void *);
RANGE_FUNCTIONS(DECLARED)
static int (*cuptiEnableCallback)(uint32_t, Subscriber, int, uint32_t);
static int (*cuptiGetDeviceId)(CUcontext, uint32_t *);

static struct {
    size_t ranges, metric_count, config_size;
    unsigned long version, level;
    const char *chip, *metrics[METRICS];
    uint8_t *config;
    char *bytes;
} plan;
static struct session {
    CUcontext context; /* NULL: not used */
    void *object;      /* NULL: over */
    uint8_t *image;
    size_t image_size, count;
    uint32_t *names, device;
} sessions[SESSIONS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool running;
static _Thread_local bool inside; /* CUPTI may call CUDA, and so us, while we call it */

static bool ask(const char *name, int (*function)(void *), void *parameters) {
    int answer = function ? function(parameters) : ABSENT;
    if (answer) problem(name, answer, "counting each kernel");
    return !answer;
}
#define ASK(name, parameters) ask(#name, name, parameters)

/* --- the plan --- */

static char *whole(const char *path, size_t *size) {
    FILE *file = fopen(path, "rbe");
    char *bytes = file ? malloc(CONFIG) : NULL;
    *size = bytes ? fread(bytes, 1, CONFIG - 1, file) : 0;
    if (bytes) bytes[*size] = 0;
    if (file) fclose(file);
    return bytes;
}

/* Take one line of the plan; false at the empty one, or at what is no plan. */
static bool planned(char *line) {
    if (!strncmp(line, "chip ", 5)) plan.chip = line + 5;
    else if (!strncmp(line, "version ", 8)) plan.version = strtoul(line + 8, NULL, 10);
    else if (!strncmp(line, "level ", 6)) plan.level = strtoul(line + 6, NULL, 10);
    else if (!strncmp(line, "ranges ", 7)) plan.ranges = strtoul(line + 7, NULL, 10);
    else if (!strncmp(line, "config ", 7)) plan.config_size = strtoul(line + 7, NULL, 10);
    else if (!strncmp(line, "metric ", 7) && plan.metric_count < METRICS) plan.metrics[plan.metric_count++] = line + 7;
    else return !strcmp(line, "ULLAGE PLAN 2");
    return true;
}

static bool read_plan(const char *path) {
    size_t size;
    char *bytes = whole(path, &size), *at = bytes, *end;
    memset(&plan, 0, sizeof plan);
    plan.bytes = bytes;
    while (at && (end = strchr(at, '\n'))) {
        *end = 0;
        bool more = planned(at);
        at = end + 1;
        if (!more) break;
    }
    bool whole_plan = at && plan.chip && plan.metric_count && plan.ranges && plan.ranges <= RANGES && plan.level && plan.level <= UINT16_MAX;
    if (!whole_plan || plan.config_size > size - (size_t)(at - bytes)) return false;
    uint8_t *aligned = aligned_alloc(8, (plan.config_size + 7) & ~(size_t)7);
    if (aligned) memcpy(aligned, at, plan.config_size);
    plan.config = aligned;
    return aligned;
}

/* --- a context's session --- */

static bool sized(struct session *session) {
    struct data_size size = {{SIZE(data_size, size), NULL}, session->object, plan.metrics, plan.metric_count, plan.ranges,
                             (uint32_t)plan.ranges, 0};
    if (!ASK(cuptiRangeProfilerGetCounterDataSize, &size)) return false;
    session->image_size = size.size;
    session->image = aligned_alloc(8, (size.size + 7) & ~(size_t)7);
    session->names = calloc(plan.ranges, sizeof *session->names);
    struct initialize fresh = {{SIZE(initialize, image), NULL}, session->object, size.size, session->image};
    return session->image && session->names && ASK(cuptiRangeProfilerCounterDataImageInitialize, &fresh);
}

static bool started(struct session *session) {
    struct configure configure = {
        .head = {SIZE(configure, target_level), NULL}, .object = session->object, .config_size = plan.config_size, .config = plan.config,
        .image_size = session->image_size, .image = session->image, .range = AUTO_RANGE, .replay = KERNEL_REPLAY,
        .ranges = plan.ranges, .levels = 1, .least_level = (uint16_t)plan.level, .target_level = (uint16_t)plan.level,
    };
    struct object start = {{SIZE(object, object), NULL}, session->object};
    return ASK(cuptiRangeProfilerSetConfig, &configure) && ASK(cuptiRangeProfilerStart, &start);
}

static void give_back(struct session *session) {
    struct object disable = {{SIZE(object, object), NULL}, session->object};
    ASK(cuptiRangeProfilerDisable, &disable);
    free(session->image), free(session->names);
    session->object = NULL, session->image = NULL, session->names = NULL;
}

/* Asked first: without the right to count, and beside another profiler, this is refused, while cuptiRangeProfilerEnable may be accepted. */
static bool counters_available(CUcontext context) {
    size_t length = plan.version >= DEVICE_LEVEL_SINCE ? SIZE(availability, device_level) : SIZE(availability, image);
    struct availability counters = {{length, NULL}, context, 0, NULL, 0};
    if (!ASK(cuptiProfilerGetCounterAvailability, &counters)) return false;
    counters.image = malloc(counters.size);
    bool told = counters.image && ASK(cuptiProfilerGetCounterAvailability, &counters);
    free(counters.image);
    return told;
}

/* Once a context: one that was refused, or has had its launches counted, stays as it is. */
static void begin(CUcontext context) {
    struct session *session = sessions;
    for (struct session *other = sessions; other < sessions + SESSIONS; other++)
        if (other->context == context) return;
    while (session < sessions + SESSIONS && session->context) session++;
    if (session == sessions + SESSIONS) return problem("counting every context", ABSENT, "more than 16 live at once");
    struct enable enable = {{SIZE(enable, object), NULL}, context, NULL};
    *session = (struct session){.context = context};
    if (!counters_available(context) || !ASK(cuptiRangeProfilerEnable, &enable)) return;
    session->object = enable.object;
    if (cuptiGetDeviceId) cuptiGetDeviceId(context, &session->device);
    if (!sized(session) || !started(session)) give_back(session);
}

static void write_image(struct session *session, size_t dropped) {
    static const char padding[8];
    struct text json = {0};
    text_add(&json, "{\"use\": \"range\", \"replay\": \"kernel\", \"chip\": "), text_quoted(&json, plan.chip);
    text_add(&json, ", \"version\": %lu, \"device\": %u, ", plan.version, session->device);
    text_add(&json, "\"dropped\": %zu, \"times\": [], \"metrics\": [", dropped);
    for (size_t i = 0; i < plan.metric_count; i++) text_add(&json, i ? ", " : ""), text_quoted(&json, plan.metrics[i]);
    text_add(&json, "], \"ranges\": [");
    for (size_t i = 0; i < session->count; i++) text_add(&json, "%s%u", i ? ", " : "", session->names[i]);
    text_add(&json, "]}");
    uint32_t length = (uint32_t)json.length;
    struct iovec parts[4] = {{&length, sizeof length}, {json.at, json.length}, {(void *)padding, -(sizeof length + json.length) % 8},
                             {session->image, session->image_size}};
    if (!json.failed && recording_lock()) {
        if (recording_open()) names_write(), recording_add(IMAGE, 0, parts, 4);
        recording_unlock();
    }
    text_free(&json);
}

static void end(struct session *session) {
    if (!session->object) return;
    struct stop stop = {{SIZE(stop, submitted), NULL}, session->object, 0, 0, 0};
    struct decode decode = {{SIZE(decode, dropped), NULL}, session->object, 0};
    if (ASK(cuptiRangeProfilerStop, &stop) && ASK(cuptiRangeProfilerDecodeData, &decode)) write_image(session, decode.dropped);
    give_back(session);
}

/* --- what CUPTI tells --- */

/* A kernel's name stands in the callback; a graph has none. Past the last range that fits the context runs on at full speed. */
static void launched(const struct call_data *call) {
    for (struct session *session = sessions; session < sessions + SESSIONS; session++) {
        if (session->context != call->context || !session->object) continue;
        if (call->site == SITE_ENTER && session->count < plan.ranges)
            session->names[session->count++] = name_number(call->symbol ? call->symbol : "(graph)");
        else if (call->site == SITE_EXIT && session->count == plan.ranges) end(session);
    }
}

static void end_context(CUcontext context) {
    for (struct session *session = sessions; session < sessions + SESSIONS; session++)
        if (session->context == context) end(session), session->context = NULL;
}

void counters_called(int domain, uint32_t id, const void *data) {
    const struct call_data *call = domain == DOMAIN_DRIVER ? data : NULL;
    CUcontext gone = domain == DOMAIN_RESOURCE && id == CONTEXT_LEAVING ? *(CUcontext const *)data : NULL;
    if (!atomic_load(&running) || inside || !(gone || (call && call->context))) return;
    pthread_mutex_lock(&lock);
    inside = true;
    if (gone) end_context(gone);
    else if (call->site == SITE_ENTER) begin(call->context);
    if (call) launched(call);
    inside = false;
    pthread_mutex_unlock(&lock);
}

/* --- coming and going --- */

bool counters_wanted(void) {
    const char *path = getenv("ULLAGE_COUNTERS");
    return path && *path;
}

/* A callback for each launch, and for a context's end; others would only cost time. */
static int enable_callbacks(Subscriber subscriber) {
    int answer = cuptiEnableCallback(1, subscriber, DOMAIN_RESOURCE, CONTEXT_LEAVING);
    for (size_t i = 0; i < sizeof launches / sizeof *launches && !answer; i++)
        answer = cuptiEnableCallback(1, subscriber, DOMAIN_DRIVER, launches[i]);
    return answer;
}

bool counters_start(void *library, Subscriber subscriber) {
    struct head initialize = {sizeof initialize, NULL};
    if (!read_plan(getenv("ULLAGE_COUNTERS"))) return problem("ULLAGE_COUNTERS", ABSENT, "is no plan of counters"), false;
    RANGE_FUNCTIONS(LOOKED_UP)
    cuptiEnableCallback = (int (*)(uint32_t, Subscriber, int, uint32_t))dlsym(library, "cuptiEnableCallback");
    cuptiGetDeviceId = (int (*)(CUcontext, uint32_t *))dlsym(library, "cuptiGetDeviceId");
    if (!cuptiEnableCallback || !subscriber) return problem("cuptiEnableCallback", ABSENT, "counting kernels"), false;
    perfworks_load((const void *)cuptiEnableCallback);
    ASK(cuptiProfilerInitialize, &initialize);
    int answer = enable_callbacks(subscriber);
    if (answer) problem("cuptiEnableCallback", answer, "counting kernels");
    atomic_store(&running, !answer);
    return !answer;
}

/* At the end: CUPTI may be half gone, so whoever calls this waits for it with a deadline. */
void counters_finish(void) {
    if (!atomic_exchange(&running, false)) return;
    pthread_mutex_lock(&lock);
    inside = true;
    for (struct session *session = sessions; session < sessions + SESSIONS; session++) end(session);
    inside = false;
    pthread_mutex_unlock(&lock);
}

void counters_forked(void) {
    pthread_mutex_init(&lock, NULL);
    atomic_store(&running, false);
}
