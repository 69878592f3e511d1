/* A callback for each call of CUDA, where ULLAGE_CALLBACKS asks for it: when it began and ended, by the calling thread. */
#define _GNU_SOURCE
#include "cupti_interface.h"
#include "recorder.h"

#include <string.h>
#include <time.h>

enum { CACHED = 128 };

/* Detaching: who takes the function calls it, and says so. */
static _Atomic(int (*)(void)) finalize;
static _Atomic bool finalizing, finalized;

void callbacks_detach(int (*function)(void)) {
    atomic_store(&finalized, false);
    atomic_store(&finalize, function);
}

bool callbacks_detached(void) {
    if (atomic_exchange(&finalize, NULL)) return false;
    for (uint64_t ms = 0; atomic_load(&finalizing) && ms < settings.deadline; ms++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return atomic_load(&finalized);
}

static void detach(void) {
    atomic_store(&finalizing, true);
    int (*function)(void) = atomic_exchange(&finalize, NULL);
    int answer = function ? function() : 0;
    if (answer) problem("cuptiFinalize", answer, "");
    if (function) atomic_store(&finalized, !answer);
    atomic_store(&finalizing, false);
}

/* Whether the program has launched or instantiated a graph while CUPTI was there, and how many it has instantiated. */
static _Atomic bool graphs;
static _Atomic uint64_t graphs_made;

bool callbacks_graphs(void) { return atomic_load(&graphs); }
uint64_t callbacks_graphs_made(void) { return atomic_load(&graphs_made); }

static bool is_of_graphs(int domain, uint32_t id) {
    if (domain == DOMAIN_RESOURCE) return id == GRAPH_INSTANTIATED;
    uint32_t launch = domain == DOMAIN_DRIVER ? DRIVER_GRAPH_LAUNCH : RUNTIME_GRAPH_LAUNCH;
    return id == launch || id == launch + 1;
}

void callbacks_watch_graphs(void) {
    for (uint32_t n = 0; n < 2; n++) {
        cupti_call_back_for(DOMAIN_DRIVER, DRIVER_GRAPH_LAUNCH + n);
        cupti_call_back_for(DOMAIN_RUNTIME, RUNTIME_GRAPH_LAUNCH + n);
    }
    cupti_call_back_for(DOMAIN_RESOURCE, GRAPH_INSTANTIATED);
}

/* A function's name is a constant of CUPTI's: its address says which it is. */
static uint32_t number_of(const char *function) {
    static _Thread_local struct { const char *function; uint32_t number; } cache[CACHED];
    __typeof__(&cache[0]) place = &cache[((uintptr_t)function >> 4) % CACHED];
    if (place->function != function || !place->number) place->number = name_number(function), place->function = function;
    return place->number;
}

void cuda_called(void *user, int domain, uint32_t id, const void *data) {
    const struct call_data *call = data;
    (void)user;
    counters_called(domain, id, data);
    stalls_called(domain, id, data);
    sass_called(domain, id, data);
    if (domain == DOMAIN_RESOURCE && id == CONTEXT_CREATED) activity_context_made();
    if (is_of_graphs(domain, id)) atomic_store_explicit(&graphs, true, memory_order_relaxed);
    if (domain == DOMAIN_RESOURCE && id == GRAPH_INSTANTIATED) atomic_fetch_add_explicit(&graphs_made, 1, memory_order_relaxed);
    if (!call || (domain != DOMAIN_DRIVER && domain != DOMAIN_RUNTIME)) return;
    if (is_of_graphs(domain, id) && !strstr(settings.callbacks, domain == DOMAIN_DRIVER ? "driver" : "runtime")) return;
    uint64_t now = monotonic();
    if (call->site == SITE_ENTER) {
        if (call->correlation) *call->correlation = now;
        useful_ends(useful_mine(), now);
        return;
    }
    useful_begins(useful_mine());
    struct lane *here = activity_running() && call->correlation && *call->correlation ? lane() : NULL;
    if (here) {
        costs.api_callbacks++;
        host_record(here, HOST_API, number_of(call->function), *call->correlation, now, 0);
    }
    if (atomic_load_explicit(&finalize, memory_order_relaxed)) detach();
}
