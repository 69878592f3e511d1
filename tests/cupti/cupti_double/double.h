/* A double of libcupti for a machine without a GPU: what its parts share, and what a fake CUDA program calls to make things happen.
 *
 * Written from the documented interface. Nothing is measured: a "kernel" is a record that somebody asked for. Times handed in are ns of
 * CLOCK_REALTIME, as CUPTI's own are.
 *
 * CUPTI_DOUBLE_VERSION  what cuptiGetVersion answers: 26 to 28 (CUDA 12.8, 12.9), 130000 and 130001, 130100 and 130101, up to 130500 have layouts
 * CUPTI_DOUBLE_SKEW     ns by which CUPTI's clock is ahead of CLOCK_REALTIME
 * CUPTI_DOUBLE_FAULTS   scripted faults, with commas between:
 *   privileges            no kind can be enabled, no counter read: 35
 *   subscriber            somebody else is subscribed: 39
 *   old-driver            the driver lets no subscribers share CUPTI: 27
 *   kind=5:15             enabling kind 5 answers 15
 *   NAME=CODE             the function NAME (cuptiActivityFlushAll) answers CODE
 *   error-after=N         after N good answers every function answers 999
 *   full=N                a buffer is full with N records
 *   dropped=N             the first N records of the device are dropped, and counted as dropped
 *   device-record=N       an operation takes N bytes of a buffer on the device until it is over, not 32
 *   one-device            of unified memory no pages between devices can be told: 29
 *   disorder              the records of a buffer lie in the reverse of their order
 *   unknown-kind=N        the record after the Nth is of a kind that nobody knows
 *   crash                 cuptiGetVersion crashes, as that of one release does without a driver */
#ifndef CUPTI_DOUBLE_H
#define CUPTI_DOUBLE_H
#include <stddef.h>
#include <stdint.h>

enum { SUCCESS = 0, INVALID_PARAMETER = 1, INVALID_OPERATION = 7, TOO_SMALL = 10, MAX_LIMIT_REACHED = 12, NOT_COMPATIBLE = 14, NOT_INITIALIZED = 15,
       INVALID_KIND = 21, NOT_SUPPORTED = 27, UM_NOT_SUPPORTED_ON_DEVICE = 29, INSUFFICIENT_PRIVILEGES = 35, MULTIPLE_SUBSCRIBERS = 39, UNKNOWN = 999 };
enum { DRIVER_API = 1, RUNTIME_API = 2, RESOURCE = 3, SYNCHRONIZE = 4, NVTX = 5, STATE = 6, DOMAINS = 7, IDS = 1024, SUBSCRIBERS = 4 };

/* What a function answers by the script, 0 where nothing stands in its way. Every function of the interface begins with ANSWER. */
int double_answer(const char *function);
#define ANSWER do { int scripted = double_answer(__func__); if (scripted) return scripted; } while (0)
/* The number behind `word=` in the script: 0 where only the word stands there, -1 where it doesn't. */
long double_fault(const char *word);
int double_version(void);
uint64_t double_now(void);                   /* CUPTI's time */
uint64_t double_stamp(uint64_t realtime);    /* ns of CLOCK_REALTIME as CUPTI's time */
void double_lock(void);
void double_unlock(void);
void double_activity_reset(void);
void double_callbacks_reset(void);
void double_script_reset(void);
void double_sass_reset(void);
/* Whether this thread is in the callback that tells of a new context. */
int double_creating_context(void);
/* Calls the subscriber where this id is enabled. */
void double_call_back(int domain, uint32_t id, const void *data);
/* Whether kernels are traced; the device of a context (UINT32_MAX: not told); what becomes of sampling when a context comes or goes. */
int double_tracing_kernels(void);
uint32_t double_device_of(void *context);
void double_pc_context(uint32_t id, void *context);
/* Appends a record that is complete once CUPTI's time is `end`. */
void double_record(uint32_t kind, const void *record, size_t size, uint64_t end);
void double_record_of(int subscriber, uint32_t kind, const void *record, size_t size, uint64_t end);
/* Of several subscribers: whether there may be; which one a handle is, -1 for none; what its records call a thread; nothing of it is left. */
int double_shared(void);
int double_number(const void *handle);
void double_thread_type(const void *handle, uint32_t type);
void double_subscriber_reset(int number);

/* What a fake program calls. A call of the API: `enter` gives the correlation id; a driver call inside a runtime call has the same. */
void cupti_double_launching(const char *symbol, void *context);
uint32_t cupti_double_enter(int domain, uint32_t id, const char *function, const void *parameters);
void cupti_double_count(double work);
void cupti_double_exit(int domain, uint32_t id, const char *function, const void *parameters, uint32_t correlation, int result);
void cupti_double_kernel(const char *name, uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end, uint32_t grid, uint32_t block);
void cupti_double_memcpy(uint8_t copy_kind, uint64_t bytes, uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end);
void cupti_double_memset(uint64_t bytes, uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end);
void cupti_double_synchronization(uint32_t type, uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end);
void cupti_double_marker(uint32_t flags, uint32_t id, const char *name, const char *domain, uint64_t time);
void cupti_double_graph(uint32_t graph, uint32_t correlation, uint32_t stream, uint64_t start, uint64_t end);
/* Whether graphs are recorded as a whole now, and whether CUPTI was finalised after it had seen one. */
void cupti_double_graphs_now(int *whole, int *gone);
void cupti_double_pages(uint32_t counter, uint64_t bytes, uint32_t from, uint32_t to, uint64_t start, uint64_t end);
void cupti_double_device(uint32_t device, const char *name);
void cupti_double_context(uint32_t context, uint32_t device);
void cupti_double_context_on(void *context, uint32_t device);
void cupti_double_module(uint32_t id, void *context, const char *cubin, size_t size);
void cupti_double_pc_launch(const char *launched, void *context);
void cupti_double_sass_launch(const char *function, void *context, unsigned grid);
void cupti_double_unknown(uint32_t kind, size_t size);
void cupti_double_resource(uint32_t id, void *context, void *stream);
void cupti_double_synchronized(uint32_t id, void *context, void *stream);
uint32_t cupti_double_finalized(void);        /* calls of cuptiFinalize so far */
void cupti_double_reset(void);                /* as if the library had just been loaded; the script is read anew */
#endif
