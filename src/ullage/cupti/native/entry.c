/* How the recorder comes into a program, and how it goes out: the functions that others call. */
#define _GNU_SOURCE
#include "recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE = 2000 /* ms */, TIMES = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of coming in */
static _Thread_local bool coming_in;
static _Atomic bool needed, ended;
static bool nothing_else; /* the next injection library was loaded, or there is none */

/* --- work --- */

/* What is written at each such time grows with the logarithm of how long it goes on. With the recording's lock held. */
static bool is_time(enum work work) {
    static uint64_t first, last;
    static pid_t whose;
    uint64_t now = monotonic();
    if (whose != getpid()) whose = getpid(), first = now, last = 0;
    if (work == SOON || (work == PERIODIC && now - last < (now - first) / TIMES)) return false;
    last = now;
    return true;
}

void recorder_work(enum work work) {
    if (!recording_wanted() || !recording_lock()) return;
    bool timely = is_time(work);
    activity_write();
    host_write();
    nccl_write(work);
    if (work != SOON) host_cut(work);
    if (timely) host_write_waiting(false), host_look();
    if (facts_write() && timely) recording_clocks(), facts_of_threads(false);
    recording_unlock();
}

void recorder_flush(void) {
    int before = errno;
    activity_flushed(false);
    recorder_work(ASKED);
    errno = before;
}

/* --- the end of the program --- */

static void close_recording(void) {
    activity_pause_ends();
    useful_until_now();
    if (!recording_lock()) return;
    activity_write();
    host_write();
    nccl_write(ASKED);
    host_look();
    host_tell_sums();
    host_write_waiting(true);
    if (facts_write()) recording_clocks(), facts_of_threads(true), facts_end(), rings_remove();
    recording_unlock();
}

/* Only a program's own end is ours to see: no signal is caught, so that one that is killed leaves what was flushed until then, and ends as
 * it would have. What is incomplete comes too. CUPTI or the driver may be half gone by now: it is waited for, but not without end. */
static void at_end(void) {
    if (atomic_exchange(&ended, true) || !recording_wanted()) return;
    activity_flushed(true);
    close_recording();
}

/* After the handlers: what they and the destructors before this one still did. */
__attribute__((destructor)) static void at_last(void) {
    if (!recording_wanted() || !atomic_load(&needed)) return;
    at_end();
    if (!recording_lock()) return;
    if (recording_is_open()) host_write(), host_tell_sums();
    recording_unlock();
}

static void at_quick_end(void *ignored) {
    (void)ignored;
    at_end();
}

/* GNU's C library and musl have different functions for this: naming one would keep the programs of the other from starting. */
static void register_quick_end(void) {
    int (*gnu)(void (*)(void *), void *) = (int (*)(void (*)(void *), void *))dlsym(RTLD_DEFAULT, "__cxa_at_quick_exit");
    int (*other)(void (*)(void)) = (int (*)(void (*)(void)))dlsym(RTLD_DEFAULT, "at_quick_exit");
    if (gnu) gnu(at_quick_end, NULL);
    else if (other) other(at_end);
}

/* Called by the first thread that has something to record. The handler is registered as late as that: so it runs before those of the
 * libraries that the program loaded before. */
void recorder_needed(void) {
    if (atomic_exchange(&needed, true)) return;
    recording_started();
    atexit(at_end);
    register_quick_end();
    threads_start(false);
}

/* --- forks --- */

static void in_child(void) {
    names_after_fork(true);
    pthread_mutex_init(&lock, NULL);
    recording_forked(), facts_forked(), host_forked(), nccl_forked(), pool_forked(), activity_forked(), threads_forked(), nvtx_forked();
    needed = ended = coming_in = false;
    facts_loaded();
    useful_forked();
    presence_loaded();
}

static void in_parent(void) { names_after_fork(false); }

/* As with `register_quick_end`: in GNU's C library a static piece of it names a function that musl lacks. */
static void register_forks(void) {
    typedef void handler(void);
    int (*gnu)(handler *, handler *, handler *, void *) =
        (int (*)(handler *, handler *, handler *, void *))dlsym(RTLD_DEFAULT, "__register_atfork");
    int (*other)(handler *, handler *, handler *) = (int (*)(handler *, handler *, handler *))dlsym(RTLD_DEFAULT, "pthread_atfork");
    if (gnu) gnu(names_before_fork, in_parent, in_child, NULL);
    else if (other) other(names_before_fork, in_parent, in_child);
}

__attribute__((constructor)) static void loaded(void) {
    settings_read();
    recording_to(settings.folder);
    facts_loaded();
    register_forks();
    useful_loaded();
    presence_loaded();
}

/* --- coming in --- */

static bool cuda_begins(bool injected) {
    recorder_needed();
    atexit(at_end); /* again: later than those of what was loaded meanwhile */
    bool runs = activity_start(injected);
    if (runs) threads_start(true);
    recorder_work(ASKED);
    return runs;
}

/* One comes in at a time. To attach may make CUPTI begin CUDA, and the driver then inject what is coming in already, here or, where two
 * threads do both, elsewhere, each with a lock that the other one waits for: the injection gives way. */
static bool come_in(void) {
    if (coming_in || !lock_within(&lock, PATIENCE)) return false;
    return coming_in = true;
}

static void go_out(void) {
    coming_in = false;
    pthread_mutex_unlock(&lock);
}

EXPORTED int InitializeInjection(void);

/* Another tool's library, that ours stands in the place of, comes first: if only one of the two can have CUPTI, it is the one. */
static void call_next(void) {
    bool wanted = *settings.next && !nothing_else;
    void *library = wanted ? dlopen(settings.next, RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    if (wanted && !initialize) problem("dlopen ULLAGE_NEXT_INJECTION", -1, settings.next);
    nothing_else = true;
    if (initialize && initialize != InitializeInjection) initialize();
}

/* CUPTI tells of no call that began before it was there, and to get it there takes tens of milliseconds: not the program's useful time. */
static void tell_of_beginning(uint64_t start) {
    struct lane *here = lane();
    if (here) host_record(here, HOST_API, name_number("cuInit"), start, monotonic(), 0);
}

/* The driver calls this in the program's first call of CUDA. */
int InitializeInjection(void) {
    int before = errno;
    uint64_t start = monotonic();
    if (come_in()) {
        call_next();
        if (recording_wanted() && cuda_begins(true)) tell_of_beginning(start);
        go_out();
    }
    errno = before;
    return 1;
}

/* NVTX asks the library that NVTX_INJECTION64_PATH names for its functions. CUPTI has them, which without a driver records nothing. */
static int nvtx_of_cupti(const char *name, void *table) {
    if (!recording_wanted() || settings.nvtx != NVTX_BY_CUPTI || !*settings.cupti) return 0;
    void *library = dlopen(settings.cupti, RTLD_NOW | RTLD_LOCAL);
    int (*initialize)(void *) = library ? (int (*)(void *))dlsym(library, name) : NULL;
    return initialize ? initialize(table) : 0;
}

EXPORTED int InitializeInjectionNvtx(void *table);
EXPORTED int InitializeInjectionNvtx2(void *table);
int InitializeInjectionNvtx(void *table) { return nvtx_of_cupti("InitializeInjectionNvtx", table); }

int InitializeInjectionNvtx2(void *table) {
    int before = errno, answer = nvtx_of_cupti("InitializeInjectionNvtx2", table);
    if (!answer && recording_wanted() && settings.nvtx) answer = nvtx_start(table);
    errno = before;
    return answer;
}

static int attached(const char *folder) {
    if (!recording_lock()) return EBUSY;
    if (!recording_wanted()) settings_read(), ended = false; /* since the library was loaded it may have been told more */
    bool open = (recording_wanted() || recording_to(folder)) && recording_open();
    recording_unlock();
    if (!open) return ENOENT;
    recorder_needed();
    threads_start(false);
    if (*settings.kinds) cuda_begins(false);
    return 0;
}

/* --- what Python and ullage.h call --- */

EXPORTED int ullage_attach(const char *folder);
EXPORTED int ullage_start(void);
EXPORTED int ullage_stop(void);
EXPORTED int ullage_detach(void);
EXPORTED int ullage_flush(void);
EXPORTED const char *ullage_path(void);
EXPORTED uint64_t ullage_now(void);
EXPORTED uint32_t ullage_region_begin(const char *name);
EXPORTED void ullage_region_end(uint32_t serial);
EXPORTED void ullage_region_push(const char *name);
EXPORTED void ullage_region_pop(void);
EXPORTED void ullage_host(uint16_t kind, const char *name, uint64_t start, uint64_t end, uint64_t bytes);
EXPORTED void ullage_wait_begin(const char *name);
EXPORTED void ullage_wait_end(void);
EXPORTED void ullage_note(const char *json);

int ullage_attach(const char *folder) {
    if (!come_in()) return EBUSY;
    int answer = attached(folder);
    go_out();
    return answer;
}

int ullage_start(void) { return activity_pause(false); }
int ullage_stop(void) { return activity_pause(true); }

int ullage_detach(void) {
    if (!come_in()) return EBUSY;
    bool was = recording_wanted();
    if (was) {
        activity_finish();
        close_recording();
        threads_stop();
        if (recording_lock()) recording_close(), recording_unlock();
    }
    go_out();
    return was ? 0 : ENOENT;
}

int ullage_flush(void) {
    recorder_flush();
    return recording_is_open() ? 0 : ENOENT;
}

const char *ullage_path(void) { return recording_path(); }
uint64_t ullage_now(void) { return monotonic(); }
uint32_t ullage_region_begin(const char *name) { return region_begin(name); }
void ullage_region_end(uint32_t serial) { region_end(serial); }

/* To turn a name into a number costs: not where nobody records. */
void ullage_region_push(const char *name) {
    if (recording_wanted()) region_push(name_number(name), PUSHED);
}

void ullage_region_pop(void) { region_pop(PUSHED); }

void ullage_host(uint16_t kind, const char *name, uint64_t start, uint64_t end, uint64_t bytes) {
    struct lane *here = recording_wanted() ? lane() : NULL;
    if (here) host_record(here, kind, name_number(name), start, end, bytes), host_summed(here);
}

/* Around a call that waits for other processes, in one thread; they nest. */
void ullage_wait_begin(const char *name) {
    struct lane *here = recording_wanted() ? lane() : NULL;
    if (here) wait_begin(here, name_number(name), false);
}

void ullage_wait_end(void) {
    struct lane *here = lane_if_any();
    if (here) wait_end(here);
}

void ullage_note(const char *json) {
    int before = errno;
    if (json && recording_wanted()) {
        recorder_needed();
        if (recording_lock()) recording_add(INFO, 0, &(struct iovec){(void *)json, strlen(json)}, 1), recording_unlock();
    }
    errno = before;
}
