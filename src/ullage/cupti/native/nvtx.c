/* NVTX ranges without CUPTI: the functions that NVTX 3 calls once it is given them. Ranges of the default domain become regions; those of
 * other domains are libraries' own. The numbers and the layout are those of nvtx3/nvtxDetail/nvtxTypes.h and nvtx3/nvToolsExt.h. */
#define _GNU_SOURCE
#include "recorder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wchar.h>

enum { CALLBACKS = 1 };                                       /* NvtxExportTableID */
enum { CORE = 1, CORE2 = 5 };                                 /* NvtxCallbackModule */
enum { START_EX = 4, START_A, START_W, END_RANGE, PUSH_EX, PUSH_A, PUSH_W, POP }; /* NvtxCallbackIdCore */
enum { DOMAIN_START = 2, DOMAIN_END, DOMAIN_PUSH, DOMAIN_POP, REGISTER_A = 10, REGISTER_W, CREATE_A, CREATE_W }; /* NvtxCallbackIdCore2 */
enum { NOTHING_TRACKED = -2 };                                /* NVTX_NO_PUSH_POP_TRACKING: how deep it is, nobody is told */
enum { ASCII = 1, WIDE = 2, REGISTERED = 3 };                 /* nvtxMessageType_t */
enum { MOST_STARTED = 1 << 16 };

struct attributes { /* nvtxEventAttributes_t, versions 2 and 3 */
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};
_Static_assert(offsetof(struct attributes, message) == 40, "as in nvToolsExt.h");

typedef void (*function)(void);
struct callbacks { /* NvtxExportTableCallbacks */
    size_t size;
    int (*module)(int module, function ***table, unsigned *size); /* a table of where the functions stand */
};

/* --- names --- */

static size_t utf8(char *to, uint32_t letter) {
    if (letter < 0x80) return to[0] = (char)letter, 1;
    size_t more = letter < 0x800 ? 1 : letter < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(first[more] | letter >> 6 * more);
    for (size_t i = 1; i <= more; i++) to[i] = (char)(0x80 | (letter >> 6 * (more - i) & 0x3f));
    return more + 1;
}

static uint32_t wide_number(const wchar_t *text) {
    char name[NAME_LONGEST + 1];
    size_t length = 0;
    for (; text && *text && length + 4 <= NAME_LONGEST; text++)
        length += utf8(name + length, (uint32_t)*text > 0x10ffff ? 0xfffd : (uint32_t)*text);
    name[length] = 0;
    return name_number(name);
}

/* The handle of a registered string is its number. */
static uint32_t message_number(const struct attributes *given) {
    if (!given || given->size < sizeof *given) return 0;
    switch (given->message_type) {
    case ASCII: return name_number(given->message);
    case WIDE: return wide_number(given->message);
    case REGISTERED: return (uint32_t)(uintptr_t)given->message;
    default: return 0;
    }
}

static void *register_a(void *domain, const char *text) { return (void)domain, (void *)(uintptr_t)name_number(text); }
static void *register_w(void *domain, const wchar_t *text) { return (void)domain, (void *)(uintptr_t)wide_number(text); }

/* --- ranges that are pushed and popped, thread by thread --- */

static int pushed(uint32_t name) { return region_push(name, NVTX_PUSHED), NOTHING_TRACKED; }
static int push_a(const char *text) { return pushed(name_number(text)); }
static int push_w(const wchar_t *text) { return pushed(wide_number(text)); }
static int push_ex(const struct attributes *given) { return pushed(message_number(given)); }
static int pop(void) { return region_pop(NVTX_PUSHED), NOTHING_TRACKED; }
static int domain_push(void *domain, const struct attributes *given) { return domain ? NOTHING_TRACKED : push_ex(given); }
static int domain_pop(void *domain) { return domain ? NOTHING_TRACKED : pop(); }

/* --- ranges that are started, and ended by any thread: a record when they end, of the thread that started them --- */

static struct record *started; /* the last one last */
static uint32_t count, room;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool has_room(void) {
    if (count < room) return true;
    uint32_t more = room ? room * 2 : 32;
    struct record *grown = more > MOST_STARTED ? NULL : realloc(started, more * sizeof *grown);
    if (!grown) return false;
    started = grown, room = more;
    return true;
}

static uint64_t start(uint32_t name) {
    if (!recording_wanted()) return 0;
    struct record range = {.start = monotonic(), .thread = (uint32_t)syscall(SYS_gettid), .name = name, .kind = HOST_REGION,
                           .serial = region_serial()};
    pthread_mutex_lock(&lock);
    bool kept = has_room();
    if (kept) started[count++] = range;
    else costs.lost++;
    pthread_mutex_unlock(&lock);
    return kept ? range.serial : 0;
}

static bool taken(uint64_t serial, struct record *range) {
    pthread_mutex_lock(&lock);
    uint32_t at = count;
    while (at && started[at - 1].serial != serial) at--;
    if (at) {
        *range = started[at - 1];
        memmove(&started[at - 1], &started[at], (count-- - at) * sizeof *started);
    }
    pthread_mutex_unlock(&lock);
    return at;
}

static void end_range(uint64_t serial) {
    struct record range;
    if (!serial || !taken(serial, &range)) return;
    range.end = monotonic();
    host_range(&range);
}

static uint64_t start_a(const char *text) { return start(name_number(text)); }
static uint64_t start_w(const wchar_t *text) { return start(wide_number(text)); }
static uint64_t start_ex(const struct attributes *given) { return start(message_number(given)); }
static uint64_t domain_start(void *domain, const struct attributes *given) { return domain ? 0 : start_ex(given); }
static void domain_end(void *domain, uint64_t serial) { (void)domain, end_range(serial); }

void nvtx_forked(void) { /* they are the parent's */
    pthread_mutex_init(&lock, NULL);
    started = NULL;
    count = room = 0;
}

/* --- giving NVTX the functions --- */

/* Without a handle a domain would be taken for the default one. */
static char other_domain;
static void *create(const void *name) { return (void)name, &other_domain; }

struct ours { unsigned number; function function; };
static const struct ours core[] = {
    {START_EX, (function)start_ex}, {START_A, (function)start_a}, {START_W, (function)start_w}, {END_RANGE, (function)end_range},
    {PUSH_EX, (function)push_ex}, {PUSH_A, (function)push_a}, {PUSH_W, (function)push_w}, {POP, (function)pop}};
static const struct ours core2[] = {
    {DOMAIN_START, (function)domain_start}, {DOMAIN_END, (function)domain_end}, {DOMAIN_PUSH, (function)domain_push},
    {DOMAIN_POP, (function)domain_pop}, {REGISTER_A, (function)register_a}, {REGISTER_W, (function)register_w},
    {CREATE_A, (function)create}, {CREATE_W, (function)create}};

static bool given(const struct callbacks *callbacks, int module, const struct ours *functions, size_t number) {
    function **table = NULL;
    unsigned size = 0;
    if (!callbacks->module(module, &table, &size) || !table) return false;
    for (size_t i = 0; i < number; i++)
        if (functions[i].number < size && table[functions[i].number]) *table[functions[i].number] = functions[i].function;
    return true;
}

int nvtx_start(void *export_table) {
    const struct callbacks *callbacks = ((const void *(*)(uint32_t))export_table)(CALLBACKS);
    if (!callbacks || callbacks->size < sizeof *callbacks || !callbacks->module) return 0;
    bool first = given(callbacks, CORE, core, sizeof core / sizeof *core);
    return given(callbacks, CORE2, core2, sizeof core2 / sizeof *core2) || first;
}
