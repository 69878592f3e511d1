/* How long a thread was on a processor, by its CPU clock. What is missing of a stretch of useful time is no useful time: the thread slept,
 * waited for a disk or a lock, was stopped, or had to leave the processor to others.
 *
 * A reading is a call of the system, many times as dear as one of the monotonic clock: `host.c` says when a thread makes one. */
#define _GNU_SOURCE
#include "recorder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { READINGS = 16, ROUNDS = 5, DEAREST = 20000 /* ns */ };

uint64_t cpu_clock_ns;
static pthread_once_t measuring = PTHREAD_ONCE_INIT;
static struct presence at_start;

static bool read_clock(clockid_t clock, uint64_t *time) {
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) return false;
    *time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return true;
}

/* A clock that stands still while it is read counts ticks: no thread can be told off the CPU by it. */
static void measure(void) {
    uint64_t least = UINT64_MAX, first = 0, last = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t before = monotonic();
        for (int i = 0; i < READINGS; i++)
            if (!read_clock(CLOCK_THREAD_CPUTIME_ID, round || i ? &last : &first)) return;
        uint64_t took = (monotonic() - before) / READINGS;
        if (took < least) least = took;
    }
    if (last > first && least < DEAREST) cpu_clock_ns = least ? least : 1;
}

uint64_t cpu_clock_cost(void) {
    if (settings.processor) pthread_once(&measuring, measure);
    return cpu_clock_ns;
}

struct presence presence_now(uint64_t now) {
    struct presence found = {.at = now};
    if (!cpu_clock_ns || !read_clock(CLOCK_THREAD_CPUTIME_ID, &found.cpu)) found.at = 0;
    costs.cpu_readings++;
    return found;
}

uint64_t presence_off(const struct presence *before, const struct presence *after) {
    if (!before->at || after->at <= before->at || after->cpu < before->cpu) return 0;
    uint64_t wall = after->at - before->at, cpu = after->cpu - before->cpu;
    return wall > cpu ? wall - cpu : 0;
}

/* Linux's clock of any thread of a process: its number, and that it is a thread's and counts what the scheduler counts. */
bool cpu_clock_of(uint32_t thread, uint64_t *cpu) {
    enum { PER_THREAD = 4, SCHEDULED = 2 };
    return cpu_clock_ns && read_clock((clockid_t)(~thread << 3 | PER_THREAD | SCHEDULED), cpu);
}

struct presence presence_at_start(void) { return cpu_clock_cost() ? at_start : (struct presence){0}; }

/* --- what the system says besides: of the main thread --- */

static bool read_file(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, size - 1, file) : 0;
    if (file) fclose(file);
    text[length] = 0;
    return length;
}

static const char *own_file(char path[64], const char *name) {
    snprintf(path, 64, "/proc/self/task/%d/%s", (int)getpid(), name);
    return path;
}

/* The second number of schedstat, ns in which it could have run. */
static bool waited_for_processor(uint64_t *time) {
    char path[64], text[128];
    return read_file(own_file(path, "schedstat"), text, sizeof text) && sscanf(text, "%*s %" SCNu64, time) == 1;
}

/* The 42nd field of stat, ticks; the name in the second one may hold anything. All 0 where the system doesn't account for it. */
static bool waited_for_disks(uint64_t *time) {
    enum { FIELD = 42, SECOND = 2 };
    char path[64], text[1024], *at;
    if (!read_file("/proc/sys/kernel/task_delayacct", text, sizeof text) || atoi(text) != 1) return false;
    if (!read_file(own_file(path, "stat"), text, sizeof text) || !(at = strrchr(text, ')'))) return false;
    for (int field = SECOND; at && field < FIELD; field++) at = strchr(at + 1, ' ');
    if (!at) return false;
    *time = strtoull(at, NULL, 10) * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
    return true;
}

static struct waits_so_far { uint64_t processor, disks; bool known; } before; /* the recording */

static struct waits_so_far waits_now(void) {
    struct waits_so_far found = {.known = true};
    if (!waited_for_processor(&found.processor)) found.processor = 0;
    if (!waited_for_disks(&found.disks)) found.disks = 0;
    return found;
}

/* The main thread is there before it records anything. */
void presence_loaded(void) {
    at_start = (struct presence){0};
    before.known = false;
    if (!recording_wanted() || !settings.processor || syscall(SYS_gettid) != getpid()) return;
    before = waits_now();
    if (read_clock(CLOCK_THREAD_CPUTIME_ID, &at_start.cpu)) at_start.at = monotonic();
}

void presence_begins(void) {
    if (cpu_clock_cost() && !before.known) before = waits_now();
}

/* As members of an object. */
void presence_facts(struct text *json) {
    if (!cpu_clock_ns) return;
    struct waits_so_far now = waits_now();
    const char *comma = json->length > 1 ? ", " : "";
    if (now.processor > before.processor) text_add(json, "%s\"processor_wait_ns\": %" PRIu64, comma, now.processor - before.processor), comma = ", ";
    if (now.disks > before.disks) text_add(json, "%s\"disk_wait_ns\": %" PRIu64, comma, now.disks - before.disks);
}
