/* What an empty parallel region and a barrier take of one thread's time on a processor, in ns: each line of output is a name, and ns. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int count, char **words) {
    long times = count > 1 ? atol(words[1]) : 100000, sum = 0;
    double region = 1e18, barrier = 1e18;
    for (int round = 0; round < 5; round++) {
        double start = now();
        for (long i = 0; i < times; i++) {
#pragma omp parallel num_threads(1)
            sum += i;
        }
        double each = (now() - start) / (double)times;
        if (each < region) region = each;
#pragma omp parallel num_threads(1)
        {
            start = now();
            for (long i = 0; i < times; i++) {
#pragma omp barrier
            }
            each = (now() - start) / (double)times;
        }
        if (each < barrier) barrier = each;
    }
    printf("region %.1f\nbarrier %.1f\n", region, barrier);
    return sum < 0;
}
