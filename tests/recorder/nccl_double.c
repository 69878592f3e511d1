/* NCCL's side of its profiler plugin interface, version 4, as NCCL 2.27 plays it: the library that NCCL_PROFILER_PLUGIN names is opened, its
 * `ncclProfiler_v4` called, by a script of lines (the first argument):
 *
 *   init C HASH NODES RANKS RANK NAME                 coll H C SEQUENCE FUNCTION COUNT ROOT DATATYPE CHANNELS ALGORITHM PROTOCOL
 *   stop H          kernel K H CHANNEL TIMER          end K TIMER           finalize C
 *   sleep MS        at NS (of CLOCK_MONOTONIC)        wrong                 fork
 *   threads C COUNT EACH: so many threads, each of which has so many collectives of 2 channels, in communicators C, C + 1, …
 *   push NAME, pop: regions of ullage.h               kill
 *
 * C, H and K are numbers of communicators and handles. As NCCL does, it asks for a group's handle first and tells of a collective only with
 * one, tells what the mask has a bit for, and of a kernel only where the collective has a handle. `coll` prints when the plugin was called and
 * when it came back. A plugin that answers anything but success, or writes where it must not, ends it with 9.
 *
 * The layouts are declared here a second time, from the facts of ext-profiler/example/nccl/profiler_v4.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct { uint8_t type; void *parentObj; int rank; } Head;
typedef struct {
    Head head;
    uint64_t seqNumber; const char *func; const void *sendBuff; void *recvBuff; size_t count; int root; const char *datatype;
    uint8_t nChannels, nWarps; const char *algo, *proto;
} Collective;
typedef struct { Head head; uint8_t channelId; uint64_t pTimer; } Kernel;
typedef struct {
    const char *name;
    int (*init)(void **, int *, const char *, uint64_t, int, int, int, void *);
    int (*startEvent)(void *, void **, void *);
    int (*stopEvent)(void *);
    int (*recordEventState)(void *, int, void *);
    int (*finalize)(void *);
} Profiler;

enum { MOST = 20000 };
static const Profiler *plugin;
static void *contexts[MOST], *handles[MOST], *kernels[MOST];
static int ranks[MOST], mask;

static void well(int answer) { if (answer) fprintf(stderr, "the plugin answers %d\n", answer), _exit(9); }

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void *group(int c) {
    void *handle = (void *)7;
    char event[104] = {1};
    ((Head *)event)->rank = ranks[c];
    well(plugin->startEvent(contexts[c], &handle, event));
    return handle;
}

static void collective(int c, void **handle, Collective event) {
    void *parent = mask & (1 | 2 | 64) ? group(c) : NULL;
    *handle = NULL;
    if (!parent || !(mask & (2 | 64))) return;
    event.head = (Head){2, parent, ranks[c]};
    well(plugin->startEvent(contexts[c], handle, &event));
    well(plugin->stopEvent(parent));
}

static void stop(void *handle) { if (handle) well(plugin->stopEvent(handle)); }

static void kernel(int c, void **made, void *parent, uint8_t channel, uint64_t timer) {
    Kernel event = {{64, parent, 0}, channel, timer};
    *made = NULL;
    if (mask & 64 && parent) well(plugin->startEvent(contexts[c], made, &event));
}

static void end(void *handle, uint64_t timer) {
    uint64_t arguments[2] = {timer, 0xabab};
    if (!handle) return;
    well(plugin->recordEventState(handle, 22, arguments));
    well(plugin->stopEvent(handle));
    if (arguments[1] != 0xabab) _exit(9);
}

struct work { int communicator, each; };

static void *work(void *given) {
    struct work *mine = given;
    for (int n = 0; n < mine->each; n++) {
        void *handle, *channels[2];
        collective(mine->communicator, &handle, (Collective){.seqNumber = (uint64_t)n, .func = "AllReduce", .count = 5, .datatype = "ncclInt8",
                   .nChannels = 2, .algo = "TREE", .proto = "LL"});
        kernel(mine->communicator, &channels[0], handle, 0, 1000u + (unsigned)n);
        stop(handle);
        kernel(mine->communicator, &channels[1], handle, 1, 900u + (unsigned)n);
        end(channels[1], 3000u + (unsigned)n), end(channels[0], 2000u + (unsigned)n);
        if (n % 64 == 63) usleep(2000);
    }
    return NULL;
}

static void in_threads(int first, int count, int each) {
    pthread_t threads[64];
    struct work works[64];
    for (int n = 0; n < count; n++) works[n] = (struct work){first + n, each}, pthread_create(&threads[n], NULL, work, &works[n]);
    for (int n = 0; n < count; n++) pthread_join(threads[n], NULL);
}

/* What NCCL never does. */
static void wrong(void) {
    Collective event = {{2, NULL, 0}, .func = "AllReduce", .datatype = "ncclInt8", .algo = "RING", .proto = "LL", .nChannels = 1};
    Kernel orphan = {{64, (void *)0x123456, 0}, 3, 77};
    uint64_t arguments[1] = {5};
    void *handle = (void *)7;
    char unknown[104] = {(char)0x80};
    static const uintptr_t never[] = {0, 1, 2, 3, 0x7f0000000002u, 0xfffffffffffffffeu, 0xffffffffffffffffu};
    well(plugin->startEvent(NULL, &handle, &event)), well(handle != NULL);
    well(plugin->startEvent((void *)0x99999, &handle, &event)), well(handle != NULL);
    well(plugin->startEvent(NULL, &handle, &orphan)), well(handle != NULL);
    well(plugin->startEvent(NULL, &handle, unknown)), well(handle != NULL);
    for (size_t n = 0; n < sizeof never / sizeof *never; n++) {
        well(plugin->stopEvent((void *)never[n]));
        well(plugin->recordEventState((void *)never[n], 22, arguments)), well(plugin->recordEventState((void *)never[n], 4, NULL));
        if (never[n] != 1) well(plugin->finalize((void *)never[n])); /* 1 may well be a communicator's */
    }
}

static void in_child(void) {
    pid_t child = fork();
    if (child == 0) {
        for (int n = 0; n < MOST; n++) stop(handles[n]), end(kernels[n], 99);
        exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    well(status);
}

static void region(const char *function, const char *name) {
    void (*of)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, function);
    if (of) of(name);
}

static void deed(const char *line) {
    char what[32] = "", text[4][64] = {{0}};
    long a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;
    uint64_t hash = 0;
    sscanf(line, "%31s", what);
    const char *rest = line + strlen(what);
    if (!strcmp(what, "init") && sscanf(rest, "%ld %" SCNu64 " %ld %ld %ld %63s", &a, &hash, &b, &c, &d, text[0]) == 6) {
        ranks[a] = (int)d;
        well(plugin->init(&contexts[a], &mask, text[0], hash, (int)b, (int)c, (int)d, NULL));
        printf("{\"mask\": %d, \"context\": %d}\n", mask, contexts[a] != NULL);
    } else if (!strcmp(what, "coll") && sscanf(rest, "%ld %ld %ld %63s %ld %ld %63s %ld %63s %63s", &a, &b, &c, text[0], &d, &e, text[1], &f,
                                               text[2], text[3]) == 10) {
        uint64_t before = now();
        collective((int)b, &handles[a], (Collective){.seqNumber = (uint64_t)c, .func = text[0], .count = (size_t)d, .root = (int)e,
                   .datatype = text[1], .nChannels = (uint8_t)f, .nWarps = 16, .algo = text[2], .proto = text[3]});
        printf("{\"sequence\": %ld, \"before\": %" PRIu64 ", \"after\": %" PRIu64 ", \"handle\": %d}\n", c, before, now(), handles[a] != NULL);
        memset(text, 'x', sizeof text); /* NCCL's texts may be gone by now */
    } else if (!strcmp(what, "stop")) stop(handles[atol(rest)]);
    else if (!strcmp(what, "kernel") && sscanf(rest, "%ld %ld %ld %" SCNu64, &a, &b, &c, &hash) == 4)
        kernel(0, &kernels[a], handles[b], (uint8_t)c, hash);
    else if (!strcmp(what, "end") && sscanf(rest, "%ld %" SCNu64, &a, &hash) == 2) end(kernels[a], hash);
    else if (!strcmp(what, "finalize")) well(plugin->finalize(contexts[atol(rest)]));
    else if (!strcmp(what, "sleep")) usleep((unsigned)atol(rest) * 1000);
    else if (!strcmp(what, "at") && sscanf(rest, "%" SCNu64, &hash) == 1) while (now() < hash) usleep(200);
    else if (!strcmp(what, "threads") && sscanf(rest, "%ld %ld %ld", &a, &b, &c) == 3) in_threads((int)a, (int)b, (int)c);
    else if (!strcmp(what, "wrong")) wrong();
    else if (!strcmp(what, "fork")) in_child();
    else if (!strcmp(what, "push") && sscanf(rest, "%63s", text[0]) == 1) region("ullage_region_push", text[0]);
    else if (!strcmp(what, "pop")) region("ullage_region_pop", "");
    else if (!strcmp(what, "kill")) fflush(stdout), kill(getpid(), SIGKILL);
    else if (*what) fprintf(stderr, "what is '%s'?\n", line), exit(8);
}

int main(int count, char **words) {
    const char *path = getenv("NCCL_PROFILER_PLUGIN");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    plugin = library ? dlsym(library, "ncclProfiler_v4") : NULL;
    FILE *script = count > 1 ? fopen(words[1], "r") : NULL;
    char line[512];
    if (!script) return 8;
    if (!plugin) return puts("{\"plugin\": null}"), 0;
    printf("{\"plugin\": \"%s\"}\n", plugin->name);
    while (fgets(line, sizeof line, script)) deed(line);
    dlclose(library);
    return 0;
}
