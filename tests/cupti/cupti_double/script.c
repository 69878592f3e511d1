/* The double's script, version and clock. */
#define _GNU_SOURCE
#include "double.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static atomic_long answers;

void double_lock(void) { pthread_mutex_lock(&lock); }
void double_unlock(void) { pthread_mutex_unlock(&lock); }
void double_script_reset(void) { answers = 0; }

long double_fault(const char *word) {
    const char *script = getenv("CUPTI_DOUBLE_FAULTS");
    size_t length = strlen(word);
    while (script && *script) {
        size_t size = strcspn(script, ",");
        if (size >= length && !strncmp(script, word, length) && (size == length || script[length] == '='))
            return size == length ? 0 : strtol(script + length + 1, NULL, 10);
        script += size + (script[size] == ',');
    }
    return -1;
}

int double_answer(const char *function) {
    long most = double_fault("error-after"), code = double_fault(function);
    if (code > 0) return (int)code;
    return most >= 0 && answers++ >= most ? UNKNOWN : SUCCESS;
}

int double_version(void) {
    const char *told = getenv("CUPTI_DOUBLE_VERSION");
    return told ? atoi(told) : 130101;
}

static uint64_t realtime(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t double_stamp(uint64_t time) {
    const char *skew = getenv("CUPTI_DOUBLE_SKEW");
    if (!time) return time;
    return time + (skew ? (uint64_t)strtoll(skew, NULL, 10) : 0);
}
uint64_t double_now(void) { return double_stamp(realtime()); }

int cuptiGetVersion(uint32_t *version) {
    if (double_fault("crash") >= 0) abort();
    ANSWER;
    *version = (uint32_t)double_version();
    return SUCCESS;
}
int cuptiGetTimestamp(uint64_t *timestamp) { ANSWER; *timestamp = double_now(); return SUCCESS; }
int cuptiGetTimestamp_v2(const void *subscriber, uint64_t *timestamp) {
    ANSWER;
    if (!timestamp || double_number(subscriber) < 0) return INVALID_PARAMETER;
    *timestamp = double_now();
    return SUCCESS;
}
