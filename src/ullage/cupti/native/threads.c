/* Two threads of our own. The writer puts into the file what there is: when something is completed, and every so often. The flusher
 * asks CUPTI for what it has; as that may take long, or for ever, nobody else waits for it without a limit. */
#define _GNU_SOURCE
#include "recorder.h"

#include <signal.h>
#include <sys/prctl.h>

enum { LEAST = 10, SILENT = 3600 * 1000 /* ms */ };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER, asked = PTHREAD_COND_INITIALIZER, answered = PTHREAD_COND_INITIALIZER;
static bool writer_runs, flusher_runs, work, forced;
static uint64_t requests, answers, each; /* ms between two times of work */
static uintptr_t generation; /* threads of an earlier one end */

static uint64_t period(void) {
    return !settings.flush ? SILENT : settings.flush < LEAST ? LEAST : settings.flush;
}

static void *writer(void *born) {
    uint64_t last = monotonic();
    prctl(PR_SET_NAME, "ullage-writer");
    pthread_mutex_lock(&lock);
    while (generation == (uintptr_t)born) {
        if (!work) wait_within(&woken, &lock, each);
        work = false;
        uint64_t between = each * 1000000u;
        pthread_mutex_unlock(&lock);
        uint64_t start = monotonic();
        bool periodic = start - last + 1000000u >= between;
        if (periodic) last = start;
        recorder_work(periodic ? PERIODIC : SOON);
        costs.writer_ns += monotonic() - start;
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void flush_once(void) {
    uint64_t request = requests;
    bool all = forced;
    forced = false;
    pthread_mutex_unlock(&lock);
    activity_flush(all);
    pthread_mutex_lock(&lock);
    answers = request;
    pthread_cond_broadcast(&answered);
}

static void *flusher(void *born) {
    prctl(PR_SET_NAME, "ullage-flusher");
    pthread_mutex_lock(&lock);
    while (generation == (uintptr_t)born) {
        if (requests == answers) wait_within(&asked, &lock, each);
        if (generation == (uintptr_t)born && (requests != answers || each != SILENT)) flush_once();
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Signals are the program's: its own threads get them. */
static bool begun(void *(*body)(void *)) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, body, (void *)generation);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) problem("pthread_create", failed, "");
    else pthread_detach(thread);
    return !failed;
}

void threads_start(bool with_flusher) {
    pthread_mutex_lock(&lock);
    each = period();
    if (!writer_runs) writer_runs = begun(writer);
    if (with_flusher && !flusher_runs) flusher_runs = begun(flusher);
    pthread_mutex_unlock(&lock);
}

bool threads_writing(void) {
    pthread_mutex_lock(&lock);
    bool runs = writer_runs;
    pthread_mutex_unlock(&lock);
    return runs;
}

void threads_wake(void) {
    pthread_mutex_lock(&lock);
    work = true;
    pthread_cond_signal(&woken);
    pthread_mutex_unlock(&lock);
}

/* Have CUPTI flushed; false if it didn't answer in time. Without a thread to do it, it is done here. */
bool threads_flushed(bool all) {
    uint64_t until = monotonic() + settings.deadline * 1000000u;
    pthread_mutex_lock(&lock);
    if (!flusher_runs) {
        pthread_mutex_unlock(&lock);
        activity_flush(all);
        return true;
    }
    uint64_t request = ++requests;
    forced |= all;
    pthread_cond_signal(&asked);
    for (uint64_t now; answers < request && (now = monotonic()) < until;) wait_within(&answered, &lock, (until - now) / 1000000u + 1);
    bool done = answers >= request;
    pthread_mutex_unlock(&lock);
    return done;
}

void threads_stop(void) {
    pthread_mutex_lock(&lock);
    generation++;
    writer_runs = flusher_runs = false;
    pthread_cond_broadcast(&woken);
    pthread_cond_broadcast(&asked);
    pthread_mutex_unlock(&lock);
}

void threads_forked(void) {
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&woken, NULL), pthread_cond_init(&asked, NULL), pthread_cond_init(&answered, NULL);
    writer_runs = flusher_runs = work = forced = false;
    requests = answers = 0;
}
