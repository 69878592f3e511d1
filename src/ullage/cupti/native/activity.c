/* CUPTI's activity records: which kinds, the two callbacks that trade buffers, and the end. */
#define _GNU_SOURCE
#include "cupti_interface.h"
#include "recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 64, LEAST = 4096, MOST = 512 << 20 };

static const char GRAPHS_BEFORE[] = "CUDA graphs from before the recorder crash when they are recorded as a whole: their kernels are recorded";
static const char GRAPHS_OF_PAUSE[] =
    "CUDA graphs that were made while recording was paused would crash if they were recorded as a whole: from now on their kernels are recorded instead";

/* Why CUPTI is not called: it wasn't asked for or is not to be had; it belongs to the parent of a fork; it was given back; it didn't answer. */
static _Atomic enum { NEVER, RUNNING, FORKED, DETACHED, SILENT } state;
static struct { int kind, answer; bool on; } kinds[KINDS];
static int kind_count;
static struct { int calls, refused, answer; } left_out; /* the last answer that was none of yes */
static _Atomic uint64_t paused_since; /* 0: isn't */
static enum { TRACING, COUNTING, SAMPLING, COUNTING_INSTRUCTIONS } mode; /* activity, or in its place counters, program counters, instructions */
static uint64_t graphs_at_pause; /* as callbacks_graphs_made() told when whole graphs were recorded last */
static bool by_driver; /* whether CUDA's driver brought the recorder in */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of starting, pausing and detaching */

bool activity_running(void) { return atomic_load(&state) == RUNNING; }

/* --- what CUPTI calls, in its thread or the program's: as little as possible --- */

static void counted(uint64_t start) {
    costs.callbacks++;
    costs.callback_ns += monotonic() - start;
}

void activity_requested(uint8_t **buffer, size_t *size, size_t *most) {
    uint64_t start = monotonic();
    *most = 0;
    *buffer = activity_running() ? pool_take(size) : NULL;
    if (!*buffer) *size = 0;
    counted(start);
}

void activity_completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    uint64_t start = monotonic();
    (void)size;
    if (atomic_load(&state) == FORKED) return;
    pool_completed(buffer, valid, (uint64_t)(uintptr_t)context, stream);
    if (threads_writing()) threads_wake();
    else recorder_work(SOON);
    counted(start);
}

/* --- starting --- */

/* In each context CUPTI keeps what it measures in buffers on the device until that is over; by itself it makes up to 250 of them, 800 MB.
 * With fewer it drops, and counts, what finds no room. It makes some at first, which must be fewer than it may have. What a context has
 * already stays. */
static void bound_device_buffers(void) {
    enum { USUAL_SIZE = 3200000, SMALLEST = 1 << 16, FEWEST = 4 };
    size_t size = settings.device_memory / FEWEST;
    if (!settings.device_memory) return;
    size = size < SMALLEST ? SMALLEST : size > USUAL_SIZE ? USUAL_SIZE : size;
    size_t limit = settings.device_memory / size;
    if (limit < FEWEST) limit = FEWEST;
    if (!cupti_set(DEVICE_BUFFERS_AT_FIRST, FEWEST - 1, sizeof size) || !cupti_set(DEVICE_BUFFER_LIMIT, limit, sizeof size) ||
        !cupti_set(DEVICE_BUFFER_SIZE, size, sizeof size))
        problem("cuptiActivitySetAttribute", ABSENT, "CUPTI's buffers on devices are as large as it makes them");
}

static void configure(void) {
    size_t size = settings.buffer & ~(size_t)7;
    size = size < LEAST ? LEAST : size > MOST ? MOST : size;
    bool zeroed = cupti_set(ZEROED_OUT_BUFFER, 1, 1);
    bound_device_buffers();
    pool_begin(size, settings.memory, zeroed);
    texts_at(settings.names);
    cupti_number_threads();
}

/* What is to be told of unified memory is settled before it is asked for: the bytes that move to a device, from one and between two. The
 * last are no good on machines that have one GPU. */
static int configure_pages(void) {
    enum { SINGLE_DEVICE = 1, TO_DEVICE = 1, TO_HOST = 2, BETWEEN_DEVICES = 8 };
    struct page_counter wanted[] = {{SINGLE_DEVICE, TO_DEVICE, 0, 1}, {SINGLE_DEVICE, TO_HOST, 0, 1}, {SINGLE_DEVICE, BETWEEN_DEVICES, 0, 1}};
    return cupti_configure_pages(wanted, 3) ? cupti_configure_pages(wanted, 2) : 0;
}

/* Of the calls of a kind those are left out that the list names: "4:7+9,5:20". */
static void leave_out(int kind, int (*function)(int kind, uint32_t call)) {
    char listed[LIST + 1], word[16];
    snprintf(listed, sizeof listed, ",%s", settings.left_out), snprintf(word, sizeof word, ",%d:", kind);
    const char *at = strstr(listed, word);
    at = at ? at + strlen(word) : "";
    for (char *end; *at >= '0' && *at <= '9'; at = *end == '+' ? end + 1 : end) {
        int answer = function(kind, (uint32_t)strtoul(at, &end, 10));
        if (answer) left_out.refused++, left_out.answer = answer;
        else left_out.calls++;
    }
}

static int enable(int kind) {
    int answer = cupti_enable(kind);
    if (!answer && (kind == DRIVER_CALLS || kind == RUNTIME_CALLS)) leave_out(kind, cupti_leave_out);
    return answer;
}

static int configure_and_enable(int kind) {
    int answer = kind == UNIFIED_MEMORY_COUNTER ? configure_pages() : 0;
    return answer ? answer : enable(kind);
}

static bool kind_asked(int kind) {
    char listed[LIST + 2], word[16];
    snprintf(listed, sizeof listed, ",%s,", settings.kinds), snprintf(word, sizeof word, ",%d,", kind);
    return strstr(listed, word);
}

/* A graph that was there before whole graphs are asked for crashes the program when it is launched (seen with CUPTI 13.0 on an H200), and
 * where there is a context there may be one. */
static bool graphs_may_be_there(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), *context = NULL;
    int (*count)(int *) = driver ? (int (*)(int *))dlsym(driver, "cuDeviceGetCount") : NULL, devices = 0, active;
    int (*current)(void **) = driver ? (int (*)(void **))dlsym(driver, "cuCtxGetCurrent") : NULL;
    int (*state)(int, unsigned *, int *) = driver ? (int (*)(int, unsigned *, int *))dlsym(driver, "cuDevicePrimaryCtxGetState") : NULL;
    unsigned flags;
    if (current && !current(&context) && context) return true;
    if (!count || count(&devices)) return false;
    for (int n = 0; n < devices; n++)
        if (state && !state(n, &flags, &active) && active) return true;
    return false;
}

static int refuse_whole_graphs(const char *why) {
    problem("cuptiActivityEnable", ABSENT, why);
    return ABSENT;
}

/* Where CUPTI is shared, whether graphs are told as a whole is settled for all, before anybody asks for anything. */
static void enable_kinds(void) {
    const char *at = settings.kinds;
    kind_count = 0;
    left_out.calls = left_out.refused = 0;
    bool whole = kind_asked(GRAPH_TRACE) && (by_driver || !graphs_may_be_there());
    if (cupti_shared() && whole) cupti_set(SHARED_GRAPHS, 1, 1);
    for (char *end; at && kind_count < KINDS; at = *end ? end + 1 : NULL) {
        long kind = strtol(at, &end, 10);
        if (end == at) break;
        /* a refused kind is no failure: the answers are told */
        int answer = kind == GRAPH_TRACE && !whole ? refuse_whole_graphs(GRAPHS_BEFORE) : configure_and_enable((int)kind);
        kinds[kind_count].kind = (int)kind, kinds[kind_count].answer = answer, kinds[kind_count++].on = !answer;
    }
}

/* Unified memory can be configured once the driver is initialised, which it may not be yet when it brings the recorder in. */
static __typeof__(&kinds[0]) pages_refused(void) {
    for (int i = 0; i < kind_count; i++)
        if (kinds[i].kind == UNIFIED_MEMORY_COUNTER && kinds[i].answer) return &kinds[i];
    return NULL;
}

static int do_not_call_back(int kind, uint32_t call) {
    return cupti_stop_call_back(kind == DRIVER_CALLS ? DOMAIN_DRIVER : DOMAIN_RUNTIME, call);
}

static void enable_callbacks(void) {
    if (!cupti_subscriber()) return;
    if (strstr(settings.callbacks, "driver") && !cupti_call_back(DOMAIN_DRIVER)) leave_out(DRIVER_CALLS, do_not_call_back);
    if (strstr(settings.callbacks, "runtime") && !cupti_call_back(DOMAIN_RUNTIME)) leave_out(RUNTIME_CALLS, do_not_call_back);
    if (pages_refused()) cupti_call_back_for(DOMAIN_RESOURCE, CONTEXT_CREATED);
}

static void tell(void) {
    struct text facts = {0};
    size_t limit = cupti_get(DEVICE_BUFFER_LIMIT);
    cupti_facts(&facts);
    if (limit && mode == TRACING)
        text_add(&facts, "\"device_buffers\": {\"bytes\": %zu, \"limit\": %zu, \"at_first\": %zu, \"pinned\": %s}, ", cupti_get(DEVICE_BUFFER_SIZE),
                 limit, cupti_get(DEVICE_BUFFERS_AT_FIRST), cupti_get(PINNED_BUFFERS) & 0xff ? "true" : "false");
    perfworks_facts(&facts);
    text_add(&facts, "\"injected\": %s, \"kinds\": {", by_driver ? "true" : "false");
    for (int i = 0; i < kind_count; i++) text_add(&facts, "%s\"%d\": %d", i ? ", " : "", kinds[i].kind, kinds[i].answer);
    text_add(&facts, "}");
    if (left_out.calls) text_add(&facts, ", \"calls_left_out\": %d", left_out.calls);
    if (left_out.refused) text_add(&facts, ", \"calls_not_left_out\": {\"calls\": %d, \"answer\": %d}", left_out.refused, left_out.answer);
    facts_cupti(&facts);
}

/* The callbacks first, then the kinds: no record is made that has no buffer to go to. */
static bool traced(void) {
    configure();
    if (cupti_register()) return false;
    atomic_store(&state, RUNNING);
    enable_kinds();
    enable_callbacks();
    cupti_flush_each(settings.flush);
    return true;
}

static bool started(void) {
    if (!cupti_found()) return false;
    mode = stalls_wanted() ? SAMPLING : sass_wanted() ? COUNTING_INSTRUCTIONS : counters_wanted() ? COUNTING : TRACING;
    if (!cupti_subscribed(cuda_called, mode != TRACING)) return false;
    if (cupti_subscriber()) callbacks_watch_graphs();
    void *library = cupti_library();
    bool runs = mode == SAMPLING   ? stalls_start(library, cupti_subscriber())
                : mode == COUNTING_INSTRUCTIONS ? sass_start(library, cupti_subscriber())
                : mode == COUNTING ? counters_start(library, cupti_subscriber())
                                   : traced();
    if (!runs) cupti_unsubscribe();
    if (runs) atomic_store(&state, RUNNING);
    return runs;
}

bool activity_start(bool injected) {
    pthread_mutex_lock(&lock);
    int now = atomic_load(&state);
    bool begins = now == NEVER || now == DETACHED;
    if (begins) by_driver = injected;
    bool runs = now == RUNNING || (begins && started());
    if (begins) tell();
    pthread_mutex_unlock(&lock);
    return runs;
}

/* A context is made, so the driver is initialised. */
void activity_context_made(void) {
    if (mode != TRACING || !activity_running() || pthread_mutex_trylock(&lock)) return;
    __typeof__(&kinds[0]) pages = pages_refused();
    int answer = pages ? configure_and_enable(pages->kind) : ABSENT;
    if (pages && answer != pages->answer) pages->answer = answer, pages->on = !answer, tell();
    pthread_mutex_unlock(&lock);
}

/* --- while it runs --- */

/* What isn't recorded meanwhile is no idleness: so the pause itself is recorded. */
static void record_pause(bool paused) {
    uint64_t now = monotonic(), from = atomic_exchange(&paused_since, paused ? now : 0);
    struct lane *here = from ? lane() : NULL;
    if (here) host_record(here, HOST_PAUSE, name_number("recording paused"), from, now, 0);
}

void activity_pause_ends(void) { record_pause(false); }

static int switch_kind(int kind, bool on) {
    int answer = on ? enable(kind) : cupti_disable(kind);
    if (answer) problem(on ? "cuptiActivityEnable" : "cuptiActivityDisable", answer, "");
    return answer;
}

/* A graph that was made while whole graphs weren't recorded is as one from before the recorder (seen with CUPTI 13.0 on an H200; one that was
 * made before the pause is not, whenever it was launched first): from then on kernels are recorded. */
static bool refuse_graphs_of_the_pause(__typeof__(&kinds[0]) kind, bool on) {
    if (kind->kind != GRAPH_TRACE) return false;
    if (!on) graphs_at_pause = callbacks_graphs_made();
    if (!on || graphs_at_pause == callbacks_graphs_made()) return false;
    kind->answer = refuse_whole_graphs(GRAPHS_OF_PAUSE), tell();
    return true;
}

static int switched(bool on) {
    int first = 0, count = 0;
    for (int i = 0; i < kind_count; i++) {
        if (kinds[i].answer || kinds[i].on == on || refuse_graphs_of_the_pause(&kinds[i], on)) continue;
        int answer = switch_kind(kinds[i].kind, on);
        if (!answer) kinds[i].on = on, count++;
        else if (!first) first = answer;
    }
    if (count) record_pause(!on);
    return first;
}

int activity_pause(bool paused) {
    pthread_mutex_lock(&lock);
    int answer = activity_running() ? switched(!paused) : ABSENT;
    pthread_mutex_unlock(&lock);
    return answer;
}

void activity_flush(bool forced) {
    if (!activity_running()) return;
    uint64_t start = monotonic();
    if (mode == SAMPLING) stalls_flush(forced);
    else if (mode == TRACING) cupti_flush(forced);
    else if (forced) mode == COUNTING ? counters_finish() : sass_finish();
    costs.flushes++;
    costs.flush_ns += monotonic() - start;
}

/* After the deadline CUPTI is taken to be stuck, perhaps with a lock of its own held: it isn't called any more. */
bool activity_flushed(bool forced) {
    if (!activity_running() || threads_flushed(forced)) return true;
    problem("cuptiActivityFlushAll", ETIMEDOUT, "it didn't answer: no activity is recorded from here on");
    atomic_store(&state, SILENT);
    return false;
}

uint64_t activity_time(void) { return activity_running() ? cupti_time() : 0; }

static void write_buffer(struct buffer *buffer) {
    uint64_t head[2] = {buffer->context, buffer->stream};
    struct iovec parts[2] = {{head, sizeof head}, {buffer->bytes, buffer->valid}};
    if (!buffer->valid) return;
    texts_write(activity_running() ? cupti_next_record : NULL, buffer);
    if (!recording_add(BUFFER, 0, parts, 2)) return;
    costs.buffers++;
    costs.bytes += buffer->valid;
}

static void write_dropped(void) {
    uint64_t dropped = mode != TRACING || !activity_running() ? 0 : cupti_dropped();
    costs.dropped += dropped;
    if (dropped) recording_add(DROPPED, 0, &(struct iovec){&dropped, sizeof dropped}, 1);
}

void activity_write(void) {
    for (struct buffer *buffer; (buffer = pool_next()); pool_back(buffer)) write_buffer(buffer);
    write_dropped();
}

/* --- the end --- */

/* Others may go on with CUPTI. */
static bool left_to_others(void) {
    if (!cupti_shared()) return false;
    cupti_unsubscribe();
    return true;
}

/* cuptiFinalize is safe at the exit of a call of CUDA, once the device is synchronised (guide 2.3.7): so a call is made that does that. Where
 * the program has graphs it isn't: the next launch of one may crash (seen with CUPTI 13.0 on an H200). */
static bool finalized(void) {
    int (*synchronize)(void) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver) synchronize = (int (*)(void))dlsym(driver, "cuCtxSynchronize");
    if (!cupti_finalizer() || !synchronize || !cupti_subscriber()) return false;
    callbacks_detach(cupti_finalizer());
    if (!cupti_call_back(DOMAIN_DRIVER)) synchronize();
    return callbacks_detached();
}

static void give_back(void) {
    atomic_store(&state, DETACHED); /* whatever of CUPTI is called after cuptiFinalize would bring it back */
    recording_unlock();
    if (left_to_others()) return;
    if (callbacks_graphs()) problem("cuptiFinalize", ABSENT, "the program has CUDA graphs, which it could crash: CUPTI stays, idle"), cupti_unsubscribe();
    else if (finalized()) cupti_forget();
    else problem("cuptiFinalize", ABSENT, "no call of CUDA came to make it from: CUPTI stays, idle"), cupti_unsubscribe();
}

void activity_finish(void) {
    if (!activity_flushed(true)) return;
    pthread_mutex_lock(&lock);
    for (int i = 0; activity_running() && i < kind_count; i++)
        if (kinds[i].on) switch_kind(kinds[i].kind, false);
    pthread_mutex_unlock(&lock);
    activity_flushed(true);
    recorder_work(ASKED);
    pthread_mutex_lock(&lock);
    if (activity_running() && recording_lock()) give_back();
    pthread_mutex_unlock(&lock);
}

/* In the child of a fork CUPTI has none of its threads: it is never called again. Where it didn't run, the child may start it. */
void activity_forked(void) {
    pthread_mutex_init(&lock, NULL);
    counters_forked(), stalls_forked(), sass_forked();
    int now = atomic_load(&state);
    if (now == RUNNING || now == SILENT) atomic_store(&state, FORKED);
}
