/* A program that uses the recorder's functions in the ways that the tests name, and prints what must be true of it afterwards.
 * The recorder is found as the program's own (preloaded), or loaded from ULLAGE_RECORDER. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint32_t (*begin)(const char *);
static void (*end)(uint32_t), (*host)(uint16_t, const char *, uint64_t, uint64_t, uint64_t), (*note)(const char *);
static int (*flush)(void), (*attach)(const char *), (*detach)(void);
static uint64_t (*now)(void);

static void load(void) {
    void *library = getenv("ULLAGE_RECORDER") ? dlopen(getenv("ULLAGE_RECORDER"), RTLD_NOW) : RTLD_DEFAULT;
    const struct { const char *name; void *to; } functions[] = {
        {"ullage_region_begin", &begin}, {"ullage_region_end", &end}, {"ullage_host", &host}, {"ullage_note", &note},
        {"ullage_flush", &flush}, {"ullage_now", &now}, {"ullage_attach", &attach}, {"ullage_detach", &detach}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = library ? dlsym(library, functions[i].name) : NULL;
        if (!found) fprintf(stderr, "no %s: %s\n", functions[i].name, dlerror()), exit(90);
        memcpy(functions[i].to, &found, sizeof found);
    }
}

static void region(const char *name) { end(begin(name)); }

static void nested(void) {
    uint32_t outer = begin("outer"), inner = begin("inner");
    host(1, "all_reduce", 100, 250, 4096);
    end(inner);
    end(outer);
}

static void disordered(void) {
    uint32_t first = begin("first"), second = begin("second"), third = begin("third");
    end(second), end(first), end(third), end(third), end(4711), end(0);
}

static long count = 5000;
static void *many(void *name) {
    for (long i = 0; i < count; i++) region(name);
    return NULL;
}

static void threads(void) {
    static char names[4][16];
    pthread_t made[4];
    for (int i = 0; i < 4; i++) snprintf(names[i], sizeof names[i], "thread %d", i), pthread_create(&made[i], NULL, many, names[i]);
    for (int i = 0; i < 4; i++) pthread_join(made[i], NULL);
}

/* A daemon's habit: everything closed, and the numbers used again for files of its own. */
static void closed(void) {
    char mine[] = "mine-XXXXXX";
    region("before"), flush();
    for (int i = 3; i < 1024; i++) close(i);
    int file = mkstemp(mine);
    for (int i = file; i < 400; i++) dup2(file, i);
    region("after"), flush();
    for (int i = 3; i < 400; i++)
        if (write(i, "x", 1) != 1) exit(91);
    printf("%s %ld\n", mine, (long)lseek(file, 0, SEEK_END));
}

static void forked(int how) {
    uint32_t open = begin("parent's");
    if (how == 2) flush(); /* the file is there */
    pid_t child = how == 2 ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (!child) {
        end(open); /* the parent's region: not the child's to end */
        if (how == 1) region("child's");
        if (how == 2) region("raw child's"), flush();
        exit(how == 2 ? 0 : 7);
    }
    int status;
    waitpid(child, &status, 0);
    end(open);
    printf("%d\n", WEXITSTATUS(status));
}

/* A child that forks before the parent has recorded anything, and one that runs another program. */
static void executed(char **words) {
    static char last[] = "nested";
    region("before exec"), flush();
    words[1] = last;
    execv("/proc/self/exe", words);
}

static void limited(void) {
    region("fits"), flush();
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){2048, RLIM_INFINITY});
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof name, "region %d of a hundred", i);
        region(name), flush();
    }
}

static void *cancelled(void *nothing) {
    for (;; pthread_testcancel()) region("for ever");
    return nothing;
}

static void cancels(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, cancelled, NULL);
    usleep(20000);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    region("afterwards"), flush();
}

static void errnos(void) {
    errno = 77;
    for (int i = 0; i < 3000; i++) region("many");
    host(4, "cudaMalloc", 1, 2, 0), note("{\"a\": 1}"), flush();
    printf("%d\n", errno);
}

static int late;
static void in_handler(void) { region("in a handler"); }
__attribute__((destructor)) static void in_destructor(void) { if (late) region("in a destructor"); }

static void attached(void) {
    printf("%d ", attach("one")), region("in one"), printf("%d ", attach("two")), printf("%d ", detach()), region("nowhere");
    printf("%d ", detach()), printf("%d ", attach("two")), region("in two"), printf("%d\n", detach());
}

static void strings(void) {
    static char longest[6000];
    memset(longest, 'x', sizeof longest - 1);
    region("größe\n\"\\"), region("\xff\xfe broken"), region(""), region(longest), region(NULL);
    for (int i = 0; i < 3000; i++) {
        char name[32];
        snprintf(name, sizeof name, "name %d", i);
        region(name);
    }
}

int main(int words, char **word) {
    const char *deed = words > 1 ? word[1] : "";
    load();
    if (!strcmp(deed, "nested")) nested();
    if (!strcmp(deed, "disordered")) disordered();
    if (!strcmp(deed, "threads")) threads();
    if (!strcmp(deed, "closed")) closed();
    if (!strcmp(deed, "fork")) forked(1);
    if (!strcmp(deed, "fork quietly")) forked(0);
    if (!strcmp(deed, "fork raw")) forked(2);
    if (!strcmp(deed, "exec")) executed(word);
    if (!strcmp(deed, "limit")) limited();
    if (!strcmp(deed, "cancel")) cancels();
    if (!strcmp(deed, "errno")) errnos();
    if (!strcmp(deed, "attach")) attached();
    if (!strcmp(deed, "strings")) strings();
    if (!strcmp(deed, "open")) begin("never ends"), flush(), _exit(3);
    if (!strcmp(deed, "lost")) region("kept"), flush(), region("not flushed"), abort();
    if (!strcmp(deed, "quick")) region("quick"), quick_exit(6);
    if (!strcmp(deed, "late")) late = 1, atexit(in_handler), region("early"), atexit(in_handler);
    if (!strcmp(deed, "chdir")) { if (chdir("/")) return 92; region("elsewhere"); }
    if (!strcmp(deed, "note")) note("{\"model\": \"llama\"}"), note("{\"model\": \"qwen\", \"step\": 3}");
    if (!strcmp(deed, "nothing")) return 4;
    return 0;
}
