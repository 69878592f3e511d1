/* Names of host records as numbers: the same number for the same name as long as the process lives, also across forks. */
#define _GNU_SOURCE
#include "recorder.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 18, CACHED = 64 }; /* names; a program that makes up more has them counted as one */
static const char OTHERS[] = "(more names)";

struct name { char *text; uint64_t hash; uint32_t length; };
static struct {
    struct name *all; /* number n stands at n - 1 */
    uint32_t *slots;  /* numbers, by hash */
    uint32_t count, room, written;
} table;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct { const char *text; uint64_t hash; uint32_t number; } cache[CACHED];

/* FNV-1a */
static uint64_t hashed(const char *text, uint32_t *length) {
    uint64_t hash = 0xcbf29ce484222325u;
    uint32_t at = 0;
    for (; at < NAME_LONGEST && text[at]; at++) hash = (hash ^ (unsigned char)text[at]) * 0x100000001b3u;
    *length = at;
    return hash ? hash : 1;
}

static bool same(const char *kept, const char *text, uint32_t length) { return !strncmp(kept, text, length) && !kept[length]; }

static bool grown(void) {
    uint32_t room = table.room ? table.room * 2 : 256;
    struct name *all = realloc(table.all, room * sizeof *all);
    if (all) table.all = all;
    uint32_t *slots = all ? calloc(room * 2, sizeof *slots) : NULL;
    if (!slots) return false;
    for (uint32_t n = 0; n < table.count; n++) {
        uint64_t slot = table.all[n].hash;
        while (slots[slot % (room * 2)]) slot++;
        slots[slot % (room * 2)] = n + 1;
    }
    free(table.slots);
    table.slots = slots;
    table.room = room;
    return true;
}

static uint32_t added(const char *text, uint64_t hash, uint32_t length, uint64_t slot) {
    char *kept = malloc((size_t)length + 1);
    if (!kept) return 0;
    memcpy(kept, text, length);
    kept[length] = 0;
    table.all[table.count] = (struct name){kept, hash, length};
    rings_name(table.count + 1, kept, length);
    return table.slots[slot % (table.room * 2)] = ++table.count;
}

static uint32_t looked_up(const char *text, uint64_t hash, uint32_t length) {
    if (table.count == table.room && !grown()) return 0;
    uint64_t slot = hash;
    for (uint32_t number; (number = table.slots[slot % (table.room * 2)]); slot++)
        if (table.all[number - 1].hash == hash && same(table.all[number - 1].text, text, length)) return number;
    if (table.count < MOST || text == OTHERS) return added(text, hash, length, slot);
    hash = hashed(OTHERS, &length);
    return looked_up(OTHERS, hash, length);
}

static uint32_t shared_number(const char *text, uint64_t hash, uint32_t length, const char **kept) {
    pthread_mutex_lock(&lock);
    uint32_t number = looked_up(text, hash, length);
    *kept = number ? table.all[number - 1].text : NULL;
    pthread_mutex_unlock(&lock);
    return number;
}

uint32_t name_number(const char *text) {
    uint32_t length;
    if (!text) return 0;
    uint64_t hash = hashed(text, &length);
    __typeof__(&cache[0]) place = &cache[hash % CACHED];
    if (place->hash == hash && place->text && same(place->text, text, length)) return place->number;
    uint32_t number = shared_number(text, hash, length, &place->text);
    place->hash = hash, place->number = number;
    return number;
}

static void collect(struct text *chunk) {
    for (uint32_t n = table.written; n < table.count; n++) {
        uint64_t key = n + 1;
        text_bytes(chunk, &key, sizeof key);
        text_bytes(chunk, &table.all[n].length, sizeof table.all[n].length);
        text_bytes(chunk, table.all[n].text, table.all[n].length);
    }
}

bool names_write(void) {
    struct text chunk = {0};
    pthread_mutex_lock(&lock);
    collect(&chunk);
    uint32_t count = table.count;
    pthread_mutex_unlock(&lock);
    bool written = !chunk.failed && (!chunk.length || recording_add(NAMES, 1, &(struct iovec){chunk.at, chunk.length}, 1));
    if (written) table.written = count; /* guarded by the recording's lock */
    if (written && chunk.length) names_into_rings();
    text_free(&chunk);
    return written;
}

void names_into_rings(void) {
    pthread_mutex_lock(&lock);
    rings_forget_names();
    for (uint32_t n = table.written; n < table.count; n++) rings_name(n + 1, table.all[n].text, table.all[n].length);
    pthread_mutex_unlock(&lock);
}

void names_changed(void) { table.written = 0; }

void names_before_fork(void) { pthread_mutex_lock(&lock); }

void names_after_fork(bool child) {
    if (child) table.written = 0;
    pthread_mutex_unlock(&lock);
}
