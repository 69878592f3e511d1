/* Threads of OpenMP that wait for one another as long as they are made to; with a second word all of it is in a region of that name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <omp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4 };

static void rest(int milliseconds) {
    struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0) {}
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int count, char **words) {
    const char *deed = count > 1 ? words[1] : "uneven";
    void (*begin)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "ullage_region_push");
    omp_set_num_threads(THREADS);
    if (count > 2) begin(words[2]);
#pragma omp parallel
    rest(1);
    if (!strcmp(deed, "uneven")) { /* thread n works for 50 n ms, then the first one alone for 100 ms, twice; and says when, in ns */
        for (int i = 0; i < 2; i++) {
            uint64_t arrived[THREADS];
#pragma omp parallel
            rest(50 * omp_get_thread_num()), arrived[omp_get_thread_num()] = now();
            uint64_t alone = now();
            rest(100);
            printf("%lu %lu %lu %lu %lu\n", arrived[0], arrived[1], arrived[2], arrived[3], now() - alone);
        }
    }
    if (!strcmp(deed, "barriers")) { /* the last one comes to each barrier 50 ms after the others */
#pragma omp parallel
        for (int i = 0; i < 3; i++) {
            if (omp_get_thread_num() == THREADS - 1) rest(50);
#pragma omp barrier
        }
    }
    if (!strcmp(deed, "tasks")) { /* one makes 8 tasks of 50 ms, all do them: nobody waits for long */
#pragma omp parallel
#pragma omp single
        for (int i = 0; i < 8; i++) {
#pragma omp task
            rest(50);
        }
    }
    if (!strcmp(deed, "critical")) { /* one after another */
#pragma omp parallel
#pragma omp critical
        rest(50);
    }
    if (!strcmp(deed, "kill")) {
#pragma omp parallel
        rest(50 * omp_get_thread_num());
        rest(200);
        raise(9);
    }
    return 0;
}
