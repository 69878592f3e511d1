/* The JSON of a recording: what process this is, what failed, and at the end what the recorder cost. */
#define _GNU_SOURCE
#include "recorder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROBLEMS = 32, ARGUMENTS = 1 << 16 };

struct costs costs;

static struct { char what[64], detail[256]; int code; } problems[PROBLEMS];
static int problem_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool problems_new, ranks_new, cupti_new;
static _Atomic int known_rank = -1, known_ranks = -1;
static struct text cupti; /* members of an object */
static _Atomic uint64_t began;

static void add(struct text *text, const char *key, int64_t value) {
    text_add(text, "%s\"%s\": %" PRId64, text->length > 1 ? ", " : "", key, value);
}

static bool write_object(enum chunk type, struct text *text) {
    text_bytes(text, "}", 1);
    bool written = !text->failed && recording_add(type, 0, &(struct iovec){text->at, text->length}, 1);
    text_free(text);
    return written;
}

/* --- problems: few, each once --- */

static void note(const char *what, int code, const char *detail) {
    int i = 0;
    while (i < problem_count && (problems[i].code != code || strcmp(problems[i].what, what))) i++;
    if (i == PROBLEMS || i < problem_count) return;
    snprintf(problems[i].what, sizeof problems[i].what, "%s", what);
    snprintf(problems[i].detail, sizeof problems[i].detail, "%s", detail ? detail : "");
    problems[i].code = code;
    problem_count++;
    problems_new = true;
}

void problem(const char *what, int code, const char *detail) {
    recorder_say("%s: %d %s", what, code, detail ? detail : "");
    pthread_mutex_lock(&lock);
    note(what, code, detail);
    pthread_mutex_unlock(&lock);
}

static void problems_write(void) {
    struct text text = {0};
    text_add(&text, "{\"problems\": [");
    pthread_mutex_lock(&lock);
    for (int i = 0; i < problem_count; i++) {
        text_add(&text, "%s{\"what\": ", i ? ", " : "");
        text_quoted(&text, problems[i].what);
        text_add(&text, ", \"code\": %d", problems[i].code);
        if (*problems[i].detail) text_add(&text, ", \"detail\": "), text_quoted(&text, problems[i].detail);
        text_add(&text, "}");
    }
    pthread_mutex_unlock(&lock);
    text_add(&text, "]");
    problems_new = false;
    if (!write_object(INFO, &text)) problems_new = true;
}

/* --- the process --- */

static void add_ranks(struct text *text) {
    int rank = known_rank >= 0 ? known_rank : settings.rank, ranks = known_ranks >= 0 ? known_ranks : settings.ranks;
    if (rank >= 0) add(text, "rank", rank);
    if (ranks > 0) add(text, "ranks", ranks);
    if (settings.local_rank >= 0) add(text, "local_rank", settings.local_rank);
}

static void add_arguments(struct text *text) {
    char *all = malloc(ARGUMENTS);
    FILE *file = all ? fopen("/proc/self/cmdline", "re") : NULL;
    size_t length = file ? fread(all, 1, ARGUMENTS - 1, file) : 0;
    if (file) fclose(file);
    if (length) {
        all[length] = 0;
        text_add(text, ", \"program\": [");
        for (size_t at = 0; at < length; at += strlen(all + at) + 1) {
            if (at) text_add(text, ", ");
            text_quoted(text, all + at);
        }
        text_add(text, "]");
    }
    free(all);
}

/* Processes of one boot share its clock, in whatever containers they are, and whatever these are called. */
static void add_boot(struct text *text) {
    char boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    size_t length = file ? fread(boot, 1, sizeof boot - 1, file) : 0;
    if (file) fclose(file);
    while (length && boot[length - 1] == '\n') boot[--length] = 0;
    if (length) text_add(text, ", \"boot\": "), text_quoted(text, boot);
}

void facts_loaded(void) { began = realtime(); }

bool facts_begin(void) {
    char host[65] = "";
    struct text text = {0};
    if (!began) began = realtime();
    if (gethostname(host, sizeof host - 1) != 0) *host = 0;
    text_add(&text, "{\"host\": "), text_quoted(&text, host);
    add(&text, "pid", getpid()), add(&text, "parent", getppid()), add(&text, "started", (int64_t)began);
    add_boot(&text);
    add_ranks(&text);
    add_arguments(&text);
    struct host_costs call = host_costs();
    if (call.between) add(&text, "mpi_within_ns", (int64_t)call.within), add(&text, "mpi_between_ns", (int64_t)call.between);
    if (call.region) add(&text, "region_ns", (int64_t)call.region);
    if (call.sum_between) add(&text, "sum_within_ns", (int64_t)call.sum_within), add(&text, "sum_between_ns", (int64_t)call.sum_between);
    presence_begins();
    if (cpu_clock_cost()) add(&text, "cpu_clock_ns", (int64_t)cpu_clock_cost());
    ranks_new = false;
    return write_object(INFO, &text);
}

void facts_ranks(int rank, int ranks) {
    known_rank = rank;
    known_ranks = ranks;
    ranks_new = true;
}

void facts_cupti(struct text *members) {
    pthread_mutex_lock(&lock);
    text_free(&cupti);
    cupti = *members;
    cupti_new = true;
    pthread_mutex_unlock(&lock);
}

static void cupti_write(void) {
    struct text text = {0};
    text_bytes(&text, "{", 1);
    pthread_mutex_lock(&lock);
    text_bytes(&text, cupti.at ? cupti.at : "", cupti.length);
    cupti_new = false;
    pthread_mutex_unlock(&lock);
    if (!write_object(INFO, &text)) cupti_new = true;
}

static void ranks_write(void) {
    struct text text = {0};
    text_bytes(&text, "{", 1);
    add_ranks(&text);
    ranks_new = !write_object(INFO, &text);
}

/* As long as nothing is recorded there is nobody to tell. */
void facts_of_threads(bool ending) {
    struct text text = {0};
    text_bytes(&text, "{", 1);
    if (recording_is_open()) useful_facts(&text);
    if (recording_is_open() && ending) openmp_facts(&text);
    if (recording_is_open()) presence_facts(&text);
    if (text.length > 1) write_object(INFO, &text);
    else text_free(&text);
}

/* The next recording begins with nothing but what it inherits: buffers that are there already. */
void facts_closed(void) {
    uint64_t memory = costs.memory;
    memset(&costs, 0, sizeof costs);
    costs.memory = costs.memory_peak = memory;
    problem_count = 0;
}

/* The file is new: what it doesn't know yet is to be written. */
void facts_changed(void) {
    problems_new = problem_count > 0;
    cupti_new = cupti.length > 0;
}

/* Write what has changed. Problems alone make no file: there must be something that they are about. */
bool facts_write(void) {
    if (cupti_new || ranks_new) recording_open();
    if (cupti_new) cupti_write();
    if (ranks_new) ranks_write();
    if (problems_new && recording_is_open()) problems_write();
    return recording_is_open();
}

void facts_end(void) {
    struct text text = {0};
    facts_write();
    text_bytes(&text, "{", 1);
    add(&text, "ended", (int64_t)realtime());
    add(&text, "records", (int64_t)costs.records), add(&text, "buffers", (int64_t)costs.buffers), add(&text, "bytes", (int64_t)costs.bytes);
    add(&text, "dropped", (int64_t)costs.dropped), add(&text, "lost", (int64_t)costs.lost);
    add(&text, "sums", (int64_t)costs.sums), add(&text, "folded", (int64_t)costs.folded);
    add(&text, "lost_bytes", (int64_t)costs.lost_bytes), add(&text, "refused", (int64_t)costs.refused);
    add(&text, "unmatched", (int64_t)costs.unmatched), add(&text, "flushes", (int64_t)costs.flushes);
    add(&text, "flush_ns", (int64_t)costs.flush_ns), add(&text, "writer_ns", (int64_t)costs.writer_ns);
    add(&text, "callbacks", (int64_t)costs.callbacks), add(&text, "callback_ns", (int64_t)costs.callback_ns);
    add(&text, "api_callbacks", (int64_t)costs.api_callbacks), add(&text, "memory_peak", (int64_t)costs.memory_peak);
    add(&text, "cpu_readings", (int64_t)costs.cpu_readings);
    write_object(END, &text);
}

void facts_forked(void) {
    pthread_mutex_init(&lock, NULL);
    memset(&costs, 0, sizeof costs);
    problem_count = 0;
    cupti = (struct text){0}; /* not freed: it may have been growing */
    problems_new = cupti_new = ranks_new = false;
    began = realtime();
}
