/* Libcupti, found and called. One subscriber has it alone, and its activity is the process'. From CUDA 13.4 on, with a driver as new, several
 * may share it, each with kinds, buffers and callbacks of its own (cupti_callbacks.h: cuptiSubscribe_v2): so other tools live beside us.
 * That takes other functions, those that end with _v2; which of the two is called is settled here. (13.3 has them too, but no way to ask for
 * the system's thread numbers, without which calls of CUDA would belong to nobody.) Who counts or samples in place of tracing has CUPTI alone. */
#define _GNU_SOURCE
#include "cupti_interface.h"
#include "recorder.h"

#include <dlfcn.h>
#include <string.h>

enum { SHARED_SINCE = 130400, ALONE = 32 /* bytes of a subscription that knows of no others */, HOLDER = 64 };

#define DECLARED(name, parameters, needed) static int(*name) parameters;
CUPTI_FUNCTIONS(DECLARED)
#define DECLARED_TOO(name, parameters) static int(*name) parameters;
SHARED_FUNCTIONS(DECLARED_TOO)

static void *library;
/* Whether single calls are recorded: functions that came after 12.0. NULL: there is none. */
static struct { int (*alone)(uint32_t call, uint8_t enable), (*ours)(Subscriber, uint32_t call, uint8_t enable); } of_driver, of_runtime;
static bool shareable; /* whether it has all that sharing takes */
static Subscriber subscriber;
static bool shared;

static int asked(const char *name, int answer) {
    if (answer) problem(name, answer, "");
    return answer;
}
#define CALL(name, arguments) (name ? name arguments : ABSENT)
#define ASK(name, arguments) (name ? asked(#name, name arguments) : ABSENT)
/* … of the subscriber's own where CUPTI is shared, of the process' else */
#define CALL_OURS(name, arguments, ours) (shared ? CALL(name##_v2, ours) : CALL(name, arguments))
#define ASK_OURS(name, arguments, ours) (shared ? ASK(name##_v2, ours) : ASK(name, arguments))

/* --- found --- */

static void *opened(void) {
    static const char *const usual[] = {"libcupti.so.13", "libcupti.so.12", NULL};
    if (!dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) { /* some releases of CUPTI crash without a driver */
        problem("dlopen libcuda.so.1", ABSENT, dlerror());
        return NULL;
    }
    void *found = *settings.cupti ? dlopen(settings.cupti, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (int i = 0; !*settings.cupti && !found && usual[i]; i++) found = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
    if (!found) problem("dlopen libcupti", ABSENT, dlerror());
    return found;
}

static bool looked_up(const char *name, void *function, bool needed) {
    if (!function) problem(name, ABSENT, "libcupti doesn't have it");
    return function || !needed;
}

bool cupti_found(void) {
    bool enough = (library = library ? library : opened());
#define LOOKED_UP_FIRST(name, parameters, needed) \
    if (library) name = (__typeof__(name))dlsym(library, #name), enough &= looked_up(#name, (void *)name, needed);
    CUPTI_FUNCTIONS(LOOKED_UP_FIRST)
    shareable = enough;
#define LOOKED_UP_TOO(name, parameters) \
    if (library) name = (__typeof__(name))dlsym(library, #name), shareable &= name != NULL;
    SHARED_FUNCTIONS(LOOKED_UP_TOO)
#define LOOKED_UP_AT_WILL(place, name) \
    if (library) place.alone = (__typeof__(place.alone))dlsym(library, name), place.ours = (__typeof__(place.ours))dlsym(library, name "_v2");
    LOOKED_UP_AT_WILL(of_driver, "cuptiActivityEnableDriverApi")
    LOOKED_UP_AT_WILL(of_runtime, "cuptiActivityEnableRuntimeApi")
    return enough;
}

void *cupti_library(void) { return library; }

/* --- subscribed --- */

static int subscribe(struct subscription wanted, callback_function *callback) {
    int answer = cuptiSubscribe_v2(&subscriber, callback, NULL, &wanted);
    if (answer) subscriber = NULL;
    return answer;
}

/* A refusal is told by who has CUPTI alone, if it is one. */
static bool subscribed_shared(callback_function *callback, char *holder) {
    uint32_t version = 0, system = THREAD_ID_SYSTEM;
    size_t length = sizeof system;
    if (!shareable || CALL(cuptiGetVersion, (&version)) || version < SHARED_SINCE) return false;
    if (subscribe((struct subscription){sizeof(struct subscription), "Ullage", holder, HOLDER, 1, {0}}, callback)) return false;
    if (!cuptiActivitySetAttribute_v2(subscriber, THREAD_IDS, &length, &system)) return shared = true;
    cuptiUnsubscribe(subscriber);
    subscriber = NULL;
    return false;
}

static bool subscribed_alone(callback_function *callback, char *holder) {
    int answer = cuptiSubscribe(&subscriber, callback, NULL);
    if (!answer) return true;
    subscriber = NULL;
    if (answer == MULTIPLE_SUBSCRIBERS && !*holder && cuptiSubscribe_v2)
        answer = subscribe((struct subscription){ALONE, "Ullage", holder, HOLDER, 0, {0}}, callback);
    if (!answer) return true;
    char detail[HOLDER + 16] = "";
    if (*holder) strcpy(detail, "it is "), strncat(detail, holder, HOLDER);
    problem("cuptiSubscribe", answer, detail);
    return false;
}

/* To subscribe is how clients of CUPTI keep out of each other's way (guide 2.2): whoever is refused stays away. */
bool cupti_subscribed(callback_function *callback, bool alone) {
    char holder[HOLDER] = "";
    shared = false;
    if (!cuptiSubscribe) return true;
    return (!alone && subscribed_shared(callback, holder)) || subscribed_alone(callback, holder);
}

Subscriber cupti_subscriber(void) { return subscriber; }
bool cupti_shared(void) { return shared; }

void cupti_unsubscribe(void) {
    if (subscriber) ASK(cuptiUnsubscribe, (subscriber));
    subscriber = NULL;
}

void cupti_forget(void) { subscriber = NULL; }

/* --- activity --- */

static void requested(uint8_t **buffer, size_t *size, size_t *most, void *information) {
    (void)information;
    activity_requested(buffer, size, most);
}

static void completed(uint8_t *buffer, size_t size, size_t valid, void *information) {
    (void)information;
    activity_completed(NULL, 0, buffer, size, valid);
}

int cupti_register(void) {
    return ASK_OURS(cuptiActivityRegisterCallbacks, (activity_requested, activity_completed), (subscriber, requested, completed));
}

int cupti_enable(int kind) { return CALL_OURS(cuptiActivityEnable, (kind), (subscriber, kind, NULL)); }
int cupti_leave_out(int kind, uint32_t call) {
    __typeof__(of_driver) *of = kind == DRIVER_CALLS ? &of_driver : &of_runtime;
    return shared ? CALL(of->ours, (subscriber, call, 0)) : CALL(of->alone, (call, 0));
}

int cupti_disable(int kind) { return CALL_OURS(cuptiActivityDisable, (kind), (subscriber, kind, NULL)); }

bool cupti_set(int attribute, size_t value, size_t length) {
    return !CALL_OURS(cuptiActivitySetAttribute, (attribute, &length, &value), (subscriber, attribute, &length, &value));
}

size_t cupti_get(int attribute) {
    size_t value = 0, length = sizeof value;
    return CALL_OURS(cuptiActivityGetAttribute, (attribute, &length, &value), (subscriber, attribute, &length, &value)) ? 0 : value;
}

int cupti_configure_pages(struct page_counter *wanted, uint32_t count) {
    return CALL(cuptiActivityConfigureUnifiedMemoryCounter, (wanted, count));
}

/* Whose turn it is to deliver is for all subscribers alike: where there are others the period stays what they know. */
void cupti_flush_each(uint64_t milliseconds) {
    if (milliseconds && !shared) ASK(cuptiActivityFlushPeriod, ((uint32_t)milliseconds));
}

void cupti_flush(bool forced) { ASK(cuptiActivityFlushAll, (forced ? FLUSH_FORCED : 0)); }

void cupti_number_threads(void) {
    if (!shared) ASK(cuptiSetThreadIdType, (THREAD_ID_SYSTEM));
}

int cupti_next_record(uint8_t *buffer, size_t valid, uint8_t **record) {
    return CALL_OURS(cuptiActivityGetNextRecord, (buffer, valid, record), (subscriber, buffer, valid, record));
}

size_t cupti_dropped(void) {
    size_t count = 0;
    return CALL_OURS(cuptiActivityGetNumDroppedRecords, (NULL, 0, &count), (subscriber, NULL, 0, &count)) ? 0 : count;
}

uint64_t cupti_time(void) {
    uint64_t now = 0;
    return CALL_OURS(cuptiGetTimestamp, (&now), (subscriber, &now)) ? 0 : now;
}

/* --- callbacks, and the end --- */

int cupti_call_back(int domain) { return ASK(cuptiEnableDomain, (1, subscriber, domain)); }
int cupti_call_back_for(int domain, uint32_t id) { return ASK(cuptiEnableCallback, (1, subscriber, domain, id)); }
int cupti_stop_call_back(int domain, uint32_t id) { return CALL(cuptiEnableCallback, (0, subscriber, domain, id)); }

/* cuptiFinalize takes CUPTI from everybody. */
int (*cupti_finalizer(void))(void) { return shared ? NULL : cuptiFinalize; }

void cupti_facts(struct text *facts) {
    uint32_t version = 0;
    Dl_info where = {0};
    if (!CALL(cuptiGetVersion, (&version))) text_add(facts, "\"cupti\": %u, ", version);
    if (cuptiActivityEnable && dladdr((void *)cuptiActivityEnable, &where) && where.dli_fname)
        text_add(facts, "\"library\": "), text_quoted(facts, where.dli_fname), text_add(facts, ", ");
    if (shared) text_add(facts, "\"shared\": true, ");
}
