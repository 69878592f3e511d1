/* As much of CUPTI's documented interface as the recorder calls: numbers and functions of cupti_activity.h and cupti_callbacks.h. They
 * are the same from release 12.0 to 13.5, and are looked up by name when the program runs, so that no header is needed to build. */
#ifndef ULLAGE_CUPTI_INTERFACE_H
#define ULLAGE_CUPTI_INTERFACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MULTIPLE_SUBSCRIBERS = 39 };                                                      /* CUptiResult */
enum { DOMAIN_DRIVER = 1, DOMAIN_RUNTIME = 2, DOMAIN_RESOURCE = 3 };                     /* CUpti_CallbackDomain */
enum { CONTEXT_CREATED = 1, CONTEXT_LEAVING = 2, GRAPH_INSTANTIATED = 18 };              /* CUpti_CallbackIdResource */
enum { DRIVER_GRAPH_LAUNCH = 514, RUNTIME_GRAPH_LAUNCH = 311 };                          /* in cupti_driver_cbid.h, cupti_runtime_cbid.h; the next number: on the thread's stream */
enum { DRIVER_CALLS = 4, RUNTIME_CALLS = 5, UNIFIED_MEMORY_COUNTER = 25, GRAPH_TRACE = 51 };   /* CUpti_ActivityKind */
enum { SITE_ENTER = 0, SITE_EXIT = 1 };                                                  /* CUpti_ApiCallbackSite */
enum { FLUSH_FORCED = 1, THREAD_ID_SYSTEM = 1, ABSENT = -1 /* no answer: the function is not there */ };
enum { DEVICE_BUFFER_SIZE = 0, DEVICE_BUFFER_LIMIT = 2, ZEROED_OUT_BUFFER = 5, DEVICE_BUFFERS_AT_FIRST = 6, PINNED_BUFFERS = 8,
       SHARED_GRAPHS = 20, THREAD_IDS = 21 }; /* CUpti_ActivityAttribute */

/* cuLaunchKernel, …Cooperative, …Ex, each with _ptsz; …CooperativeKernelMultiDevice; cuGraphLaunch */
#define KERNEL_LAUNCHES 307, 442, 477, 478, 652, 653, 480, 514, 515

/* What the `size` of a structure counts: up to a header's last member. */
#define SIZE(type, last) (offsetof(struct type, last) + sizeof(((struct type *)0)->last))
#define LOOKED_UP(name) name = (__typeof__(name))dlsym(library, #name);

typedef void *CUcontext;
typedef void *Subscriber;

struct call_data { /* CUpti_CallbackData, up to the last member that is used */
    int site;
    const char *function;
    const void *parameters;
    void *returned;
    const char *symbol;
    CUcontext context;
    uint32_t context_id;
    uint64_t *correlation; /* kept between the two callbacks of a call */
};

/* CUpti_ActivityUnifiedMemoryCounterConfig. The scope and the device have meant nothing since CUDA 7.0. */
struct page_counter { int scope, kind; uint32_t device, enable; };
_Static_assert(sizeof(struct page_counter) == 16, "as in cupti_activity.h");

/* CUpti_SubscriberParams of 13.2 and later; before that it ends with the size of `holder`, where the name of who has CUPTI comes. */
struct subscription { size_t size; const char *name; char *holder; size_t holder_size; uint8_t several, unused[7]; };
_Static_assert(sizeof(struct subscription) == 40, "as in cupti_callbacks.h");

typedef void callback_function(void *user, int domain, uint32_t id, const void *data);
typedef void buffer_requested(uint8_t **buffer, size_t *size, size_t *most);
typedef void buffer_completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

/* name, parameters, whether nothing can be recorded without it */
#define CUPTI_FUNCTIONS(X)                                                                      \
    X(cuptiActivityRegisterCallbacks, (buffer_requested *, buffer_completed *), true)          \
    X(cuptiActivityEnable, (int kind), true)                                                    \
    X(cuptiActivityFlushAll, (uint32_t flag), true)                                             \
    X(cuptiActivityDisable, (int kind), false)                                                  \
    X(cuptiActivityConfigureUnifiedMemoryCounter, (struct page_counter *, uint32_t count), false) \
    X(cuptiActivityFlushPeriod, (uint32_t milliseconds), false)                                 \
    X(cuptiActivityGetNextRecord, (uint8_t * buffer, size_t valid, uint8_t **record), false)   \
    X(cuptiActivityGetNumDroppedRecords, (CUcontext, uint32_t stream, size_t *dropped), false) \
    X(cuptiActivityGetAttribute, (int attribute, size_t *size, void *value), false)            \
    X(cuptiActivitySetAttribute, (int attribute, size_t *size, void *value), false)            \
    X(cuptiEnableCallback, (uint32_t enable, Subscriber, int domain, uint32_t id), false)       \
    X(cuptiEnableDomain, (uint32_t enable, Subscriber, int domain), false)                      \
    X(cuptiFinalize, (void), false)                                                             \
    X(cuptiGetTimestamp, (uint64_t * timestamp), false)                                         \
    X(cuptiGetVersion, (uint32_t * version), false)                                             \
    X(cuptiSetThreadIdType, (int type), false)                                                  \
    X(cuptiSubscribe, (Subscriber *, callback_function *, void *user), false)                  \
    X(cuptiUnsubscribe, (Subscriber), false)

/* The same where several subscribers share CUPTI: either all of them are there, or it is not shared. The last parameters of buffers' callbacks
 * are structures about them that are not used. */
typedef void shared_requested(uint8_t **buffer, size_t *size, size_t *most, void *information);
typedef void shared_completed(uint8_t *buffer, size_t size, size_t valid, void *information);
#define SHARED_FUNCTIONS(X)                                                                               \
    X(cuptiSubscribe_v2, (Subscriber *, callback_function *, void *user, struct subscription *))          \
    X(cuptiActivityRegisterCallbacks_v2, (Subscriber, shared_requested *, shared_completed *))            \
    X(cuptiActivityEnable_v2, (Subscriber, int kind, void *configuration))                                \
    X(cuptiActivityDisable_v2, (Subscriber, int kind, void *configuration))                               \
    X(cuptiActivityGetAttribute_v2, (Subscriber, int attribute, size_t *size, void *value))               \
    X(cuptiActivitySetAttribute_v2, (Subscriber, int attribute, size_t *size, void *value))               \
    X(cuptiActivityGetNextRecord_v2, (Subscriber, uint8_t *buffer, size_t valid, uint8_t **record))       \
    X(cuptiActivityGetNumDroppedRecords_v2, (Subscriber, CUcontext, uint32_t stream, size_t *dropped))    \
    X(cuptiGetTimestamp_v2, (Subscriber, uint64_t *timestamp))

/* cupti_calls.c: CUPTI as it is called, shared or not. Answers are CUPTI's; those that `problem` is told of are said there. */
struct text;
bool cupti_found(void);
void *cupti_library(void);
bool cupti_subscribed(callback_function *callback, bool alone);
Subscriber cupti_subscriber(void); /* NULL: there is none */
bool cupti_shared(void);
void cupti_unsubscribe(void);
void cupti_forget(void); /* the subscriber went with cuptiFinalize */
int cupti_register(void);
int cupti_enable(int kind), cupti_disable(int kind); /* not told of */
int cupti_leave_out(int kind, uint32_t call); /* of a kind of calls that is enabled; to enable the kind again takes it back. Not told of */
bool cupti_set(int attribute, size_t value, size_t length);
size_t cupti_get(int attribute); /* 0 where it is not known */
int cupti_configure_pages(struct page_counter *wanted, uint32_t count);
void cupti_number_threads(void); /* as the system does */
void cupti_flush_each(uint64_t milliseconds);
void cupti_flush(bool forced);
int cupti_next_record(uint8_t *buffer, size_t valid, uint8_t **record);
size_t cupti_dropped(void);
uint64_t cupti_time(void);
int cupti_call_back(int domain);
int cupti_call_back_for(int domain, uint32_t id);
int cupti_stop_call_back(int domain, uint32_t id);
int (*cupti_finalizer(void))(void); /* NULL where it would take CUPTI from others, or there is none */
void cupti_facts(struct text *facts);

/* activity.c: what CUPTI calls for its buffers */
void activity_requested(uint8_t **buffer, size_t *size, size_t *most);
void activity_completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

#endif
