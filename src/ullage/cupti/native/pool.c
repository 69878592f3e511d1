/* The buffers that CUPTI fills: given out zeroed, queued when completed, written, given out again. Their memory is bounded: past the
 * bound CUPTI gets none, and counts what it drops. */
#define _GNU_SOURCE
#include "recorder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct {
    size_t size;
    uint64_t bound;
    bool zeroed; /* CUPTI leaves the zeroing to us: then it isn't done in the program's threads */
    struct buffer *free, *given, *first, **last;
} pool = {.last = &pool.first};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void pool_begin(size_t size, uint64_t bound, bool zeroed) {
    pthread_mutex_lock(&lock);
    pool.size = size, pool.bound = bound, pool.zeroed = zeroed;
    pthread_mutex_unlock(&lock);
}

/* Pages of their own: aligned, zero, and nobody's memory until they are written to. */
static struct buffer *made(void) {
    if (costs.memory + pool.size > pool.bound) return NULL;
    struct buffer *buffer = malloc(sizeof *buffer);
    void *bytes = buffer ? mmap(NULL, pool.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (bytes == MAP_FAILED) {
        free(buffer);
        return NULL;
    }
    *buffer = (struct buffer){.bytes = bytes, .size = pool.size};
    costs.memory += pool.size;
    if (costs.memory > costs.memory_peak) costs.memory_peak = costs.memory;
    return buffer;
}

uint8_t *pool_take(size_t *size) {
    pthread_mutex_lock(&lock);
    struct buffer *buffer = pool.free;
    if (buffer) pool.free = buffer->next;
    else buffer = made();
    if (buffer) buffer->next = pool.given, pool.given = buffer;
    else costs.refused++;
    pthread_mutex_unlock(&lock);
    *size = buffer ? buffer->size : 0;
    return buffer ? buffer->bytes : NULL;
}

static struct buffer *found(const uint8_t *bytes) {
    for (struct buffer **at = &pool.given; *at; at = &(*at)->next)
        if ((*at)->bytes == bytes) {
            struct buffer *buffer = *at;
            *at = buffer->next;
            return buffer;
        }
    return NULL; /* another tool's: none of our business */
}

void pool_completed(uint8_t *bytes, size_t valid, uint64_t context, uint64_t stream) {
    pthread_mutex_lock(&lock);
    struct buffer *buffer = found(bytes);
    if (buffer) { /* an empty one too: whoever empties it zeroes it */
        buffer->valid = valid < buffer->size ? valid : buffer->size;
        buffer->context = context, buffer->stream = stream, buffer->next = NULL;
        *pool.last = buffer, pool.last = &buffer->next;
    }
    pthread_mutex_unlock(&lock);
}

struct buffer *pool_next(void) {
    pthread_mutex_lock(&lock);
    struct buffer *buffer = pool.first;
    if (buffer && !(pool.first = buffer->next)) pool.last = &pool.first;
    pthread_mutex_unlock(&lock);
    return buffer;
}

void pool_back(struct buffer *buffer) {
    if (pool.zeroed) memset(buffer->bytes, 0, buffer->size);
    pthread_mutex_lock(&lock);
    buffer->next = pool.free, pool.free = buffer;
    pthread_mutex_unlock(&lock);
}

void pool_forked(void) {
    pthread_mutex_init(&lock, NULL);
    pool.free = pool.given = pool.first = NULL;
    pool.last = &pool.first;
    pool.bound = 0;
}
