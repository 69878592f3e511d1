/* A program that records regions and then ends in one of the ways that no handler hears of. It prints "PID COUNT" for each of its processes;
 * of threads that are killed while they record, a file that COUNTS names has the regions that each has begun and ended. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3 };
static uint32_t (*begin)(const char *);
static void (*end)(uint32_t);
static struct { _Atomic uint64_t begun, ended; } (*counts)[THREADS];

static void load(void) {
    void *library = dlopen(getenv("ULLAGE_RECORDER"), RTLD_NOW), *functions[2] = {NULL, NULL};
    if (library) functions[0] = dlsym(library, "ullage_region_begin"), functions[1] = dlsym(library, "ullage_region_end");
    if (!functions[1]) exit(90);
    memcpy(&begin, &functions[0], sizeof begin), memcpy(&end, &functions[1], sizeof end);
}

static void regions(const char *name, int count) {
    printf("%d %s %d\n", getpid(), name, count);
    fflush(stdout);
    for (int i = 0; i < count; i++) end(begin(name));
}

static void ends(const char *how) {
    if (!strcmp(how, "killed")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "terminated")) kill(getpid(), SIGTERM);
    if (!strcmp(how, "aborts")) abort();
    if (!strcmp(how, "leaves")) _exit(3);
    if (!strcmp(how, "becomes another")) execl("/bin/true", "true", (char *)NULL);
}

static void waited(pid_t child) {
    int status;
    waitpid(child, &status, 0);
}

/* Workers as multiprocessing forks them: they end by _exit, and may have workers of their own. */
static void workers(int deep, int count) {
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (!child) {
            regions("work", count + i);
            if (deep) workers(deep - 1, count + 10);
            _exit(0);
        }
        waited(child);
    }
}

/* As some runtimes fork: the C library hears nothing of it. */
static void raw(void) {
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (!child) {
        for (int i = 0; i < 3000; i++) end(begin("raw child's"));
        _exit(0);
    }
    waited(child);
}

static void *forever(void *given) {
    int at = (int)(intptr_t)given;
    for (;;) {
        (*counts)[at].begun++;
        end(begin(at == 0 ? "a" : at == 1 ? "b" : "c"));
        (*counts)[at].ended++;
        for (volatile int i = 0; i < 3000; i++) {} /* a few microseconds */
    }
    return NULL;
}

static void threads(void) {
    int file = open(getenv("COUNTS"), O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, sizeof *counts) != 0) exit(91);
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pthread_t made;
    for (int i = 0; i < THREADS; i++) pthread_create(&made, NULL, forever, (void *)(intptr_t)i);
    pause();
}

int main(int words, char **word) {
    const char *deed = words > 1 ? word[1] : "", *how = words > 2 ? word[2] : "";
    load();
    if (!strcmp(deed, "regions")) regions("few", 7), regions("many", words > 3 ? atoi(word[3]) : 0), ends(how);
    if (!strcmp(deed, "workers")) regions("main", 5), workers(0, 20), ends(how);
    if (!strcmp(deed, "nested")) workers(1, 3), regions("main", 5), ends(how);
    if (!strcmp(deed, "raw")) regions("before", 100), raw(), regions("after", 100), ends(how);
    if (!strcmp(deed, "threads")) threads();
    return 0;
}
