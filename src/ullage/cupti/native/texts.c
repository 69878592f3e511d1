/* The names that CUPTI's records point to: each pointer's text is written before the first buffer that holds the pointer, and again
 * when another text stands there. */
#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { KINDS = 256, OFFSETS = 4, LONGEST = 1 << 20, PAGE = 4096, MOST = 1 << 20 };

static uint16_t offsets[KINDS][OFFSETS]; /* of pointers in a record of a kind, from 1 on: 0 is none */
static struct { uint64_t pointer, hash, looked; } *known; /* `looked`: in which buffer last */
static uint64_t buffers;
static size_t known_count, known_room;
static bool any;

/* "10:96,12:40+48": a kind, and where in its records a pointer stands */
void texts_at(const char *setting) {
    memset(offsets, 0, sizeof offsets);
    any = setting && *setting;
    for (char *end; setting && *setting; setting = *end ? end + 1 : end) {
        unsigned long kind = strtoul(setting, &end, 10);
        for (int i = 0; i < OFFSETS && (*end == ':' || *end == '+'); i++) {
            unsigned long offset = strtoul(end + 1, &end, 10);
            if (kind < KINDS && offset < 4096) offsets[kind][i] = (uint16_t)(offset + 1);
        }
        end += strcspn(end, ",");
    }
}

void texts_changed(void) {
    if (known) memset(known, 0, known_room * sizeof *known);
    known_count = 0;
}

static uint64_t hashed(const char *text, size_t length) {
    uint64_t hash = length, word;
    for (; length >= 8; text += 8, length -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
    }
    for (; length; text++, length--) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash | 1;
}

static size_t slot_of(uint64_t pointer) {
    size_t slot = (pointer >> 3) * 0x9e3779b97f4a7c15u >> 20;
    while (known[slot % known_room].pointer && known[slot % known_room].pointer != pointer) slot++;
    return slot % known_room;
}

static bool grown(void) {
    if (known_count * 2 < known_room) return true;
    __typeof__(known) old = known, more = calloc(known_room ? known_room * 2 : 1024, sizeof *known);
    size_t count = known_room;
    if (!more) return false;
    known = more;
    known_room = count ? count * 2 : 1024;
    for (size_t i = 0; i < count; i++)
        if (old[i].pointer) known[slot_of(old[i].pointer)] = old[i];
    free(old);
    return true;
}

/* Whether a text can be read at a pointer: were the offsets those of another release, it could point anywhere, and a module that was
 * unloaded takes its names along. The kernel looks, page by page up to the zero; where it is forbidden to, the pointer is trusted. */
static bool readable(uint64_t pointer) {
    char page[PAGE];
    for (uint64_t at = pointer; at - pointer < LONGEST;) {
        size_t length = PAGE - at % PAGE;
        struct iovec here = {page, length}, there = {(void *)(uintptr_t)at, length};
        errno = 0;
        if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != (ssize_t)length) return errno != EFAULT && errno != EINVAL;
        if (memchr(page, 0, length)) return true;
        at += length;
    }
    return false;
}

static void look(uint64_t pointer, struct text *chunk) {
    if (!pointer || !grown()) return;
    size_t slot = slot_of(pointer);
    if (known[slot].pointer && known[slot].looked == buffers) return; /* once for each buffer: a text seldom changes */
    if (!readable(pointer)) return;
    const char *text = (const char *)(uintptr_t)pointer;
    uint32_t length = (uint32_t)strnlen(text, LONGEST);
    uint64_t hash = hashed(text, length);
    if (known[slot].hash == hash) {
        known[slot].looked = buffers;
        return;
    }
    known_count += !known[slot].pointer;
    known[slot].pointer = pointer, known[slot].hash = hash, known[slot].looked = buffers;
    char *made = demangled(text, length);
    if (made) length = (uint32_t)strlen(made);
    text_bytes(chunk, &pointer, sizeof pointer);
    text_bytes(chunk, &length, sizeof length);
    text_bytes(chunk, made ? made : text, length);
    free(made);
}

static void look_in(const uint8_t *record, const uint8_t *end, struct text *chunk) {
    uint32_t kind;
    memcpy(&kind, record, sizeof kind);
    for (int i = 0; kind < KINDS && i < OFFSETS && offsets[kind][i]; i++) {
        uint64_t pointer;
        const uint8_t *at = record + offsets[kind][i] - 1;
        if (at + sizeof pointer > end) return;
        memcpy(&pointer, at, sizeof pointer);
        look(pointer, chunk);
    }
}

bool texts_write(next_record *next, struct buffer *buffer) {
    struct text chunk = {0};
    uint8_t *record = NULL, *end = buffer->bytes + buffer->valid;
    buffers++;
    while (any && next && next(buffer->bytes, buffer->valid, &record) == 0 && record >= buffer->bytes && record + 4 <= end)
        look_in(record, end, &chunk);
    bool full = known_count > MOST, written = !chunk.failed && (!chunk.length || recording_add(NAMES, 0, &(struct iovec){chunk.at, chunk.length}, 1));
    if (!written || full) texts_changed(); /* they come again with the next buffer */
    text_free(&chunk);
    return written;
}
