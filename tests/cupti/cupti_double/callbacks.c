/* The double's callback interface: one subscriber, callbacks per domain and id, calls of the API with their correlation. */
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

static struct { Callback function; void *userdata; unsigned char enabled[DOMAINS][IDS]; } subscriber;
static uint32_t thread_type, correlations;
static __thread struct { uint64_t start, scratch; uint32_t correlation; } open_calls[DEPTH];
static __thread int depth;

void double_callbacks_reset(void) { memset(&subscriber, 0, sizeof subscriber); thread_type = 0; }

void double_call_back(int domain, uint32_t id, const void *data) {
    double_lock();
    Callback function = id < IDS && subscriber.enabled[domain][id] ? subscriber.function : NULL;
    void *userdata = subscriber.userdata;
    double_unlock();
    if (function) function(userdata, domain, id, data);
}

int cuptiSubscribe(void **handle, Callback callback, void *userdata) {
    ANSWER;
    if (!handle) return INVALID_PARAMETER;
    if (subscriber.function || double_fault("subscriber") >= 0) return MULTIPLE_SUBSCRIBERS;
    subscriber.function = callback;
    subscriber.userdata = userdata;
    *handle = &subscriber;
    return SUCCESS;
}
int cuptiUnsubscribe(void *handle) {
    ANSWER;
    if (handle != &subscriber || !subscriber.function) return INVALID_PARAMETER;
    memset(&subscriber, 0, sizeof subscriber);
    return SUCCESS;
}
int cuptiEnableCallback(uint32_t enable, void *handle, int domain, uint32_t id) {
    ANSWER;
    if (handle != &subscriber || domain < DRIVER_API || domain >= DOMAINS || id >= IDS) return INVALID_PARAMETER;
    subscriber.enabled[domain][id] = enable != 0;
    return SUCCESS;
}
int cuptiEnableDomain(uint32_t enable, void *handle, int domain) {
    ANSWER;
    if (handle != &subscriber || domain < DRIVER_API || domain >= DOMAINS) return INVALID_PARAMETER;
    memset(subscriber.enabled[domain], enable != 0, IDS);
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
int cuptiSetThreadIdType(uint32_t type) { ANSWER; if (type > 1) return INVALID_PARAMETER; thread_type = type; return SUCCESS; }

static uint32_t next_correlation(void) {
    double_lock();
    uint32_t correlation = depth ? open_calls[depth - 1].correlation : ++correlations;
    double_unlock();
    return correlation;
}

/* CUPTI's default is the thread's pthread id, cut to 32 bits; SYSTEM is the system's own. */
static uint32_t thread(void) {
    static __thread char here;
    return thread_type ? (uint32_t)syscall(SYS_gettid) : (uint32_t)(uintptr_t)&here;
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
    Record record = {domain == DRIVER_API ? 4 : 5, id, open_calls[level].start, end, (uint32_t)getpid(), thread(), correlation, (uint32_t)result};
    double_record(record.kind, &record, sizeof record, end);
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
