/* As much of CUPTI's documented interface as the recorder calls: numbers and functions of cupti_activity.h and cupti_callbacks.h. They
 * are the same from release 12.0 to 13.5, and are looked up by name when the program runs, so that no header is needed to build. */
#ifndef ULLAGE_CUPTI_INTERFACE_H
#define ULLAGE_CUPTI_INTERFACE_H

#include <stddef.h>
#include <stdint.h>

enum { MULTIPLE_SUBSCRIBERS = 39 };                                                      /* CUptiResult */
enum { DOMAIN_DRIVER = 1, DOMAIN_RUNTIME = 2, DOMAIN_RESOURCE = 3 };                     /* CUpti_CallbackDomain */
enum { CONTEXT_CREATED = 1 };                                                            /* CUpti_CallbackIdResource */
enum { UNIFIED_MEMORY_COUNTER = 25 };                                                    /* CUpti_ActivityKind */
enum { SITE_ENTER = 0, SITE_EXIT = 1 };                                                  /* CUpti_ApiCallbackSite */
enum { FLUSH_FORCED = 1, THREAD_ID_SYSTEM = 1 };
enum { DEVICE_BUFFER_SIZE = 0, DEVICE_BUFFER_LIMIT = 2, ZEROED_OUT_BUFFER = 5, DEVICE_BUFFERS_AT_FIRST = 6, PINNED_BUFFERS = 8 }; /* CUpti_ActivityAttribute */

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

#endif
