/* A fake CUDA program: launches kernels, copies, synchronises, ends as it is told, and prints what it truly did as one line of JSON:
 * {"pid", "launches", "started", "ended", "operations": [[kind, stream, start, end, bytes], …]}, times in ns of CLOCK_REALTIME.
 *
 *   program [--kernels N] [--microseconds U] [--threads N] [--seconds S] [--graphs N] [--names N] [--flood]
 *           [--cooperative N] [--again] [--exit CODE] [--abort] [--kill] [--fork] [--worker] [--exec] [--no-cuda]
 *           [--devices N] [--second] [--module FILE] [--pages N]
 *
 * --kernels     of each thread (10), each of --microseconds (200); a copy before and after, a synchronisation every 5 kernels
 * --seconds     goes on until so much time has passed
 * --names       kernels have so many names in turn
 * --flood       doesn't wait for the device between kernels
 * --fork        a child does the same work, too, after its own cuInit, and prints its own line
 * --worker      after the work a child is forked that does nothing with CUDA and ends by exit(0), as workers that load data do
 * --exec        does the work, then becomes itself without --exec and does it again
 * --cooperative so many launches by cuLaunchCooperativeKernelMultiDevice
 * --again       destroys its context, and does the work again in another one
 * --devices     does the work on so many devices, one after another, each with a context that stays
 * --second      then does it in a second context of the last device, while the first one lives
 * --module      loads machine code, and unloads and loads it again after the work
 * --pages       before its kernels, so many stretches of unified memory move to the device, 4 KiB each
 * --no-cuda     never loads libcuda */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct { uint32_t kind, stream; uint64_t start, end, bytes; } Operation;
static struct {
    int (*init)(unsigned), (*create)(void **, unsigned, int), (*function)(void **, void *, const char *), (*stream)(void **, unsigned);
    int (*launch)(void *, unsigned, unsigned, void *), (*copy)(void *, const void *, size_t, int), (*synchronize)(void);
    int (*graph)(void *, void *), (*cooperative)(void *, unsigned, unsigned), (*destroy)(void *);
    int (*module)(void **, const void *), (*unload)(void *), (*prefetch)(const void *, size_t, int, void *);
    uint32_t (*operations)(const Operation **);
} cuda;
static struct {
    long kernels, microseconds, threads, graphs, cooperative, names, code, devices, pages;
    const char *module;
    double seconds;
    int flood, abort, kill, fork, worker, exec, again, no_cuda, second;
} options = {
    .kernels = 10, .microseconds = 200, .threads = 1, .names = 1, .devices = 1};
static long launches;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    static const char *const names[] = {"cuInit", "cuCtxCreate_v2", "cuModuleGetFunction", "cuStreamCreate", "cudaLaunchKernel", "cudaMemcpy",
                                        "cudaDeviceSynchronize", "cuGraphLaunch", "cuLaunchCooperativeKernelMultiDevice", "cuCtxDestroy_v2",
                                        "cuModuleLoadData", "cuModuleUnload", "cuMemPrefetchAsync", "cuda_double_operations"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        void *found = library ? dlsym(library, names[n]) : NULL;
        if (!found) { fprintf(stderr, "program: no %s in libcuda.so.1\n", names[n]); exit(3); }
        memcpy((char *)&cuda + n * sizeof found, &found, sizeof found);
    }
}

static void *work(void *argument) {
    enum { BYTES = 65536 };
    static const char from[BYTES];
    static __thread char to[BYTES];
    uint64_t until = now() + (uint64_t)(options.seconds * 1e9);
    void *stream = NULL, *functions[16];
    if (argument) cuda.stream(&stream, 0);
    for (long n = 0; n < options.names; n++) {
        char name[120];
        const char *called = getenv("PROGRAM_KERNEL"); /* the name of its kernels, in place of numbers */
        if (called) snprintf(name, sizeof name, "%s", called);
        else snprintf(name, sizeof name, "fake_kernel_%ld", n);
        cuda.function(&functions[n], NULL, name);
    }
    cuda.copy(to, from, BYTES, 1);
    for (long n = 0; n < options.pages; n++) cuda.prefetch(from, 4096, 0, stream);
    for (long n = 0; n < options.kernels || now() < until; n++) {
        cuda.launch(functions[n % options.names], (unsigned)options.microseconds, 128, stream);
        __sync_fetch_and_add(&launches, 1);
        if (!options.flood && n % 5 == 4) cuda.synchronize();
    }
    if (options.cooperative) cuda.function(&functions[0], NULL, "cooperative");
    for (long n = 0; n < options.cooperative; n++) {
        struct { void *function; unsigned grid[3], block[3], shared; void *stream, **parameters; } launch = {functions[0], {1, 1, 1}, {32, 1, 1}, 0, stream, NULL};
        cuda.cooperative(&launch, 1, 0);
    }
    for (long n = 0; n < options.graphs; n++) cuda.graph((void *)(uintptr_t)(n + 1), stream);
    cuda.synchronize();
    cuda.copy(to, from, BYTES, 2);
    return NULL;
}

static void say(uint64_t started) {
    const Operation *list = NULL;
    uint32_t count = options.no_cuda ? 0 : cuda.operations(&list);
    printf("{\"pid\": %d, \"launches\": %ld, \"started\": %llu, \"ended\": %llu, \"operations\": [", getpid(), launches,
           (unsigned long long)started, (unsigned long long)now());
    for (uint32_t n = 0; n < count; n++)
        printf("%s[%u, %u, %llu, %llu, %llu]", n ? ", " : "", list[n].kind, list[n].stream, (unsigned long long)list[n].start,
               (unsigned long long)list[n].end, (unsigned long long)list[n].bytes);
    printf("]}\n");
    fflush(stdout);
}

/* The machine code that is to be loaded, once it is; NULL for none. */
static void *code(void) {
    static char bytes[1 << 20];
    void *module = NULL;
    FILE *file = options.module ? fopen(options.module, "rb") : NULL;
    if (file && fread(bytes, 1, sizeof bytes, file)) cuda.module(&module, bytes);
    if (file) fclose(file);
    return module;
}

static void run(void) {
    uint64_t started = now();
    pthread_t threads[64];
    void *context;
    if (!options.no_cuda) {
        load();
        for (int time = 0; time <= options.again; time++) {
            if (time) cuda.destroy(context);
            for (long device = 0; device < options.devices + options.second; device++) {
                int ordinal = (int)(device < options.devices ? device : options.devices - 1);
                if (cuda.init(0) || cuda.create(&context, 0, ordinal)) { fprintf(stderr, "program: no GPU\n"); exit(4); }
                void *module = code();
                for (long n = 1; n < options.threads; n++) pthread_create(&threads[n], NULL, work, &options);
                work(NULL);
                for (long n = 1; n < options.threads; n++) pthread_join(threads[n], NULL);
                if (module) cuda.unload(module), cuda.module(&module, module);
            }
        }
    }
    say(started);
}

static void read_options(int count, char **words) {
    const struct { const char *word; long *value; } numbers[] = {
        {"--kernels", &options.kernels}, {"--microseconds", &options.microseconds}, {"--threads", &options.threads},
        {"--graphs", &options.graphs}, {"--cooperative", &options.cooperative}, {"--names", &options.names}, {"--exit", &options.code},
        {"--devices", &options.devices}, {"--pages", &options.pages}};
    const struct { const char *word; int *flag; } flags[] = {
        {"--flood", &options.flood}, {"--abort", &options.abort}, {"--kill", &options.kill}, {"--fork", &options.fork}, {"--worker", &options.worker},
        {"--exec", &options.exec}, {"--again", &options.again}, {"--no-cuda", &options.no_cuda}, {"--second", &options.second}};
    for (int n = 1; n < count; n++) {
        int known = 0;
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
            if (!strcmp(words[n], flags[k].word)) known = *flags[k].flag = 1;
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers && n + 1 < count; k++)
            if (!strcmp(words[n], numbers[k].word)) { *numbers[k].value = atol(words[++n]); known = 1; break; }
        if (!known && !strcmp(words[n], "--module") && n + 1 < count) { options.module = words[++n]; known = 1; }
        if (!known && !strcmp(words[n], "--seconds") && n + 1 < count) { options.seconds = atof(words[++n]); known = 1; }
        if (!known) { fprintf(stderr, "program: what is %s?\n", words[n]); exit(2); }
    }
    if (options.names < 1 || options.names > 16 || options.threads > 64) exit(2);
}

int main(int count, char **words) {
    read_options(count, words);
    pid_t child = options.fork ? fork() : 0;
    run();
    if (options.worker) {
        pid_t worker = fork();
        if (!worker) exit(0);
        waitpid(worker, NULL, 0);
    }
    if (options.exec) {
        int kept = 0;
        for (int n = 0; n < count; n++)
            if (strcmp(words[n], "--exec")) words[kept++] = words[n];
        words[kept] = NULL;
        execv("/proc/self/exe", words);
    }
    if (options.kill) raise(SIGKILL);
    if (options.abort) abort();
    if (child > 0) waitpid(child, NULL, 0);
    return (int)options.code;
}
