/* The double's callback interface: one subscriber, or several that all agree to that, callbacks per domain and id, calls of the API with their correlation. */
#define _GNU_SOURCE
#include "double.h"
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void (*Callback)(void *userdata, int domain, uint32_t id, const void *data);
typedef struct {                             /* CUpti_CallbackData */
    int site; const char *function; const void *parameters; void *returned; const char *symbol; void *context; uint32_t context_id;
    uint64_t *correlation_data; uint32_t correlation;
} Call;
typedef struct { uint32_t kind, id; uint64_t start, end; uint32_t process, thread, correlation, result; } Record;
enum { DEPTH = 16 };

typedef struct { size_t size; const char *name; char *holder; size_t holder_size; uint8_t several, padding[7]; } Subscription; /* CUpti_SubscriberParams */
enum { NAME = 64, LEAST_SUBSCRIPTION = 4 * sizeof(size_t), SEVERAL_SINCE = 130300 };
static struct { int used; Callback function; void *userdata; char name[NAME]; uint32_t threads; unsigned char enabled[DOMAINS][IDS]; } all[SUBSCRIBERS];
static int shared; /* whether those who subscribed agreed to have it with others */
static uint32_t thread_type, correlations;
static __thread struct { uint64_t start, scratch; uint32_t correlation; } open_calls[DEPTH];
static __thread int depth;

void double_callbacks_reset(void) { memset(all, 0, sizeof all); thread_type = 0, shared = 0; }
int double_shared(void) { return shared; }
int double_number(const void *handle) {
    for (int n = 0; n < SUBSCRIBERS; n++) if (all[n].used && handle == &all[n]) return n;
    return -1;
}
void double_thread_type(const void *handle, uint32_t type) { all[double_number(handle)].threads = type; }

void double_call_back(int domain, uint32_t id, const void *data) {
    for (int n = 0; n < SUBSCRIBERS; n++) {
        double_lock();
        Callback function = id < IDS && all[n].enabled[domain][id] ? all[n].function : NULL;
        void *userdata = all[n].userdata;
        double_unlock();
        if (function) function(userdata, domain, id, data);
    }
}

static int subscribe(void **handle, Callback callback, void *userdata, const char *name, int several) {
    int place = 0, others = 0;
    for (int n = SUBSCRIBERS - 1; n >= 0; n--) others += all[n].used, place = all[n].used ? place : n;
    if ((others && !(shared && several)) || others == SUBSCRIBERS || double_fault("subscriber") >= 0) return MULTIPLE_SUBSCRIBERS;
    memset(&all[place], 0, sizeof all[place]);
    all[place].used = 1, all[place].function = callback, all[place].userdata = userdata, shared = several;
    snprintf(all[place].name, NAME, "CUPTI for %s", name);
    *handle = &all[place];
    return SUCCESS;
}
int cuptiSubscribe(void **handle, Callback callback, void *userdata) {
    ANSWER;
    return handle ? subscribe(handle, callback, userdata, "somebody", 0) : INVALID_PARAMETER;
}
int cuptiSubscribe_v2(void **handle, Callback callback, void *userdata, Subscription *asked) {
    ANSWER;
    if (!handle || (asked && asked->size < LEAST_SUBSCRIPTION)) return INVALID_PARAMETER;
    int several = asked && asked->size > LEAST_SUBSCRIPTION && asked->several;
    if (several && double_version() < SEVERAL_SINCE) return MULTIPLE_SUBSCRIBERS;
    if (several && double_fault("old-driver") >= 0) return NOT_SUPPORTED;
    int answer = subscribe(handle, callback, userdata, asked && asked->name ? asked->name : "", several);
    if (answer && asked && asked->holder) snprintf(asked->holder, asked->holder_size, "%s", all[0].used ? all[0].name : "Nsight Systems");
    return answer;
}
int cuptiUnsubscribe(void *handle) {
    ANSWER;
    int number = double_number(handle);
    if (number < 0) return INVALID_PARAMETER;
    double_lock();
    memset(&all[number], 0, sizeof all[number]);
    if (shared) double_subscriber_reset(number);
    double_unlock();
    return SUCCESS;
}
int cuptiEnableCallback(uint32_t enable, void *handle, int domain, uint32_t id) {
    ANSWER;
    int number = double_number(handle);
    if (number < 0 || domain < DRIVER_API || domain >= DOMAINS || id >= IDS) return INVALID_PARAMETER;
    all[number].enabled[domain][id] = enable != 0;
    return SUCCESS;
}
int cuptiEnableDomain(uint32_t enable, void *handle, int domain) {
    ANSWER;
    int number = double_number(handle);
    if (number < 0 || domain < DRIVER_API || domain >= DOMAINS) return INVALID_PARAMETER;
    memset(all[number].enabled[domain], enable != 0, IDS);
    return SUCCESS;
}
int cuptiGetCallbackName(int domain, uint32_t id, const char **name) {
    static __thread char text[32];
    ANSWER;
    if (!name || domain < DRIVER_API || domain >= DOMAINS || id >= IDS) return INVALID_PARAMETER;
    snprintf(text, sizeof text, "callback %u of %d", id, domain);
    *name = text;
    return SUCCESS;
}
int cuptiSetThreadIdType(uint32_t type) {
    ANSWER;
    if (shared) return NOT_SUPPORTED;
    if (type > 1) return INVALID_PARAMETER;
    thread_type = type;
    return SUCCESS;
}

static uint32_t next_correlation(void) {
    double_lock();
    uint32_t correlation = depth ? open_calls[depth - 1].correlation : ++correlations;
    double_unlock();
    return correlation;
}

/* CUPTI's default is the thread's pthread id, cut to 32 bits; SYSTEM is the system's own. */
static uint32_t thread(int number) {
    static __thread char here;
    return (shared ? all[number].threads : thread_type) ? (uint32_t)syscall(SYS_gettid) : (uint32_t)(uintptr_t)&here;
}

/* What the thread's next call launches, and in which context: told with the call, as the driver's launches are. */
static __thread const char *launched;
static __thread void *launched_in;
void cupti_double_launching(const char *symbol, void *context) { launched = symbol, launched_in = context; }

uint32_t cupti_double_enter(int domain, uint32_t id, const char *function, const void *parameters) {
    uint32_t correlation = next_correlation();
    int level = depth++;
    if (level >= DEPTH) return correlation;
    open_calls[level].start = double_now();
    open_calls[level].scratch = 0;
    open_calls[level].correlation = correlation;
    Call call = {0, function, parameters, NULL, launched, launched_in, 1, &open_calls[level].scratch, correlation};
    double_call_back(domain, id, &call);
    return correlation;
}

void cupti_double_exit(int domain, uint32_t id, const char *function, const void *parameters, uint32_t correlation, int result) {
    int level = --depth;
    if (level >= DEPTH) return;
    uint64_t end = double_now();
    Record record = {domain == DRIVER_API ? 4 : 5, id, open_calls[level].start, end, (uint32_t)getpid(), 0, correlation, (uint32_t)result};
    for (int n = 0; n < SUBSCRIBERS; n++) record.thread = thread(n), double_record_of(n, record.kind, &record, sizeof record, end);
    Call call = {1, function, parameters, &result, launched, launched_in, 1, &open_calls[level].scratch, correlation};
    double_call_back(domain, id, &call);
}

static __thread int creating;
int double_creating_context(void) { return creating; }
void cupti_double_resource(uint32_t id, void *context, void *stream) {
    struct { void *context, *stream, *descriptor; } data = {context, stream, NULL};
    creating = id == 1; /* CUPTI_CBID_RESOURCE_CONTEXT_CREATED */
    if (id == 1) double_pc_context(id, context);
    double_call_back(RESOURCE, id, &data);
    if (id == 2) double_pc_context(id, context);
    creating = 0;
}
void cupti_double_synchronized(uint32_t id, void *context, void *stream) {
    struct { void *context, *stream; } data = {context, stream};
    double_call_back(SYNCHRONIZE, id, &data);
}
