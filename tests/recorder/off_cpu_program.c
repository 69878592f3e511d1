/* Computes, sleeps, writes to a disk and reads from it, waits for a child and is stopped, each in a region of its own, and prints for each
 * region "NAME LEAST MOST": ns in which its thread was on no processor, by its own clocks, read within the region and around it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ullage.h>
#include <unistd.h>

enum { BLOCK = 1 << 20, BLOCKS = 8, MILLISECOND = 1000000 };
static const char *path;
static int *pages_read;

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

static void compute(int64_t milliseconds) {
    for (int64_t until = clock_ns(CLOCK_THREAD_CPUTIME_ID) + milliseconds * MILLISECOND; clock_ns(CLOCK_THREAD_CPUTIME_ID) < until;) {}
}

static void computes(void) { compute(50); }
static void sleeps(void) { usleep(100000); }

/* Now the one, now the other. */
static void alternates(void) {
    for (int i = 0; i < 30; i++) compute(1), usleep(1000);
}

static void writes(void) {
    int file = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    char *block = malloc(BLOCK);
    memset(block, 1, BLOCK);
    for (int i = 0; i < BLOCKS; i++)
        if (write(file, block, BLOCK) != BLOCK || fsync(file) != 0) exit(90);
    close(file);
    free(block);
}

/* Past the system's cache, where the file system can. */
static void reads(void) {
    int file = open(path, O_RDONLY | O_DIRECT);
    if (file < 0) file = open(path, O_RDONLY);
    char *block = aligned_alloc(4096, BLOCK);
    while (read(file, block, BLOCK) > 0) {}
    close(file);
    free(block);
}

static void faults(void) {
    int file = open(path, O_RDONLY);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    const char *at = mmap(NULL, BLOCK * BLOCKS, PROT_READ, MAP_PRIVATE, file, 0);
    for (int i = 0; i < BLOCK * BLOCKS; i += 4096) *pages_read += at[i];
    munmap((void *)at, BLOCK * BLOCKS);
    close(file);
}

/* A child lets it go on after a tenth of a second. */
static void is_stopped(void) {
    pid_t parent = getpid(), child = fork();
    if (!child) {
        kill(parent, SIGSTOP), usleep(100000), kill(parent, SIGCONT);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static int64_t off(void) { return clock_ns(CLOCK_MONOTONIC) - clock_ns(CLOCK_THREAD_CPUTIME_ID); }

static void in_region(const char *name, void (*deed)(void)) {
    int64_t around = off();
    ULLAGE_REGION_BEGIN(name);
    int64_t within = off();
    deed();
    int64_t least = off() - within;
    ULLAGE_REGION_END();
    printf("%s %ld %ld\n", name, (long)least, (long)(off() - around));
}

int main(int count, char **words) {
    int sum = 0;
    path = count > 1 ? words[1] : "off";
    pages_read = &sum;
    in_region("computes", computes), in_region("sleeps", sleeps), in_region("alternates", alternates), in_region("writes", writes);
    in_region("reads", reads), in_region("faults", faults), in_region("is stopped", is_stopped);
    return 0;
}
