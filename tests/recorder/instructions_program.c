/* Computes, waits in MPI by computing too, and prints how long its main thread computed outside of MPI, in ns of the processor.
 * With "close" it closes every descriptor that it doesn't know, opens others by their numbers, and prints what was read from these;
 * with "fork" its child computes, and prints the child's process id. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The recorder's, which stands before MPI's own. */
static void call(const char *name, long a) { ((int (*)(long))dlsym(RTLD_DEFAULT, name))(a); }
#define MPI_Init(a) call("MPI_Init", a)
#define MPI_Finalize(a) call("MPI_Finalize", a)
#define MPI_Barrier(a) call("MPI_Barrier", a)

static uint64_t used(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void compute(uint64_t milliseconds) {
    for (uint64_t until = used() + milliseconds * 1000000u; used() < until;) {}
}

#define MPI(name) __attribute__((visibility("default"))) int PMPI_##name(long a); int PMPI_##name(long a) { compute((uint64_t)a); return 0; }
MPI(Init) MPI(Finalize) MPI(Barrier)

static void other_descriptors(void) {
    int mine[512], count = 0;
    for (int number = 3; number < 1024; number++) close(number);
    for (; count < 512 && (mine[count] = eventfd(7, EFD_NONBLOCK)) >= 0; count++) {}
    for (int i = 0; i < 10; i++) MPI_Barrier(0), compute(1);
    uint64_t left = 0, value;
    for (int i = 0; i < count; i++) left += read(mine[i], &value, sizeof value) == sizeof value && value == 7;
    printf("%d\n", (int)left == count && count > 400);
}

int main(int count, char **words) {
    compute(30);
    MPI_Init(0);
    uint64_t begin = used(), other = 0;
    compute(40);
    if (count > 1 && !strcmp(words[1], "close")) other_descriptors();
    if (count > 1 && !strcmp(words[1], "fork")) {
        pid_t child = fork();
        if (!child) return MPI_Init(0), compute(50), MPI_Finalize(0), 0;
        waitpid(child, NULL, 0);
        printf("%d\n", (int)child);
    }
    for (int i = 0; i < 5; i++) {
        uint64_t before = used();
        MPI_Barrier(60);
        other += used() - before;
        compute(10);
    }
    printf("%lu\n", used() - begin - other);
    MPI_Finalize(20);
    compute(30);
    return 0;
}
