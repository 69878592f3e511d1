/* Time, waiting that ends, and what the environment asks for. It is read when the library is loaded and when Python attaches, not later: a
 * program that sets variables meanwhile would move it under our feet. */
#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_RANKS = 1 << 20, USUAL_EVENTS = 16000000 /* bytes; as in live/launch.py */ };

struct settings settings;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t monotonic(void) { return clock_ns(CLOCK_MONOTONIC); }
uint64_t realtime(void) { return clock_ns(CLOCK_REALTIME); }

static struct timespec moment(uint64_t milliseconds) {
    uint64_t then = realtime() + milliseconds * 1000000u;
    return (struct timespec){.tv_sec = (time_t)(then / 1000000000u), .tv_nsec = (long)(then % 1000000000u)};
}

bool lock_within(pthread_mutex_t *mutex, uint64_t milliseconds) {
    if (pthread_mutex_trylock(mutex) == 0) return true;
    struct timespec then = moment(milliseconds);
    return milliseconds && pthread_mutex_timedlock(mutex, &then) == 0;
}

bool wait_within(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t milliseconds) {
    struct timespec then = moment(milliseconds);
    return pthread_cond_timedwait(condition, mutex, &then) == 0;
}

/* --- the environment --- */

static void read_text(char *text, size_t size, const char *name) {
    const char *value = getenv(name);
    snprintf(text, size, "%s", value && strlen(value) < size ? value : "");
}

static uint64_t number(const char *name, uint64_t usual) {
    const char *text = getenv(name);
    if (!text || *text < '0' || *text > '9') return usual;
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    return *end || errno ? usual : value;
}

static int small_number(const char *name) {
    uint64_t value = number(name, UINT64_MAX);
    return value <= MOST_RANKS ? (int)value : -1;
}

/* As launchers tell a process which of how many it is, and which on its host. The table is that of live/ranks.py, in its order. */
static const struct { const char *rank, *ranks, *local; } launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"},
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
};

static void read_ranks(void) {
    settings.rank = settings.ranks = settings.local_rank = -1;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        int rank = small_number(launchers[i].rank), ranks = small_number(launchers[i].ranks);
        if (rank < 0 || ranks <= rank) continue;
        settings.rank = rank, settings.ranks = ranks, settings.local_rank = small_number(launchers[i].local);
        return;
    }
}

void settings_read(void) {
    read_text(settings.folder, sizeof settings.folder, "ULLAGE_RECORD");
    read_text(settings.cupti, sizeof settings.cupti, "ULLAGE_CUPTI");
    read_text(settings.next, sizeof settings.next, "ULLAGE_NEXT_INJECTION");
    read_text(settings.kinds, sizeof settings.kinds, "ULLAGE_KINDS");
    read_text(settings.names, sizeof settings.names, "ULLAGE_NAMES");
    read_text(settings.callbacks, sizeof settings.callbacks, "ULLAGE_CALLBACKS");
    read_text(settings.left_out, sizeof settings.left_out, "ULLAGE_CALLS_LEFT_OUT");
    read_text(settings.instructions, sizeof settings.instructions, "ULLAGE_INSTRUCTIONS");
    settings.buffer = number("ULLAGE_BUFFER", 2u << 20);
    settings.memory = number("ULLAGE_MEMORY", 256u << 20);
    settings.device_memory = number("ULLAGE_DEVICE_MEMORY", 64u << 20);
    settings.reserve = number("ULLAGE_RESERVE", 64u << 20);
    settings.events = number("ULLAGE_EVENTS", USUAL_EVENTS);
    settings.flush = number("ULLAGE_FLUSH", 1000);
    settings.deadline = number("ULLAGE_DEADLINE", 10000);
    settings.nvtx = number("ULLAGE_NVTX", NVTX_BY_CUPTI);
    settings.nccl = number("ULLAGE_NCCL", NCCL_CALLS);
    settings.debug = number("ULLAGE_DEBUG", 0) == 1;
    settings.openmp = number("ULLAGE_OPENMP", 1) != 0;
    settings.processor = number("ULLAGE_CPU_CLOCK", 1) != 0;
    settings.make = number("ULLAGE_MAKE", 1) != 0;
    read_ranks();
}

void recorder_say(const char *format, ...) {
    char words[512];
    if (!settings.debug) return;
    va_list values;
    va_start(values, format);
    vsnprintf(words, sizeof words, format, values);
    va_end(values);
    fprintf(stderr, "ullage recorder: %s\n", words);
}
