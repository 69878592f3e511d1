/* What a thread does, added up while it does it: how long it was in which regions and in which call, with a row for each such state. The
 * thread alone changes its rows, in memory of one size; whoever holds the recording's lock copies their times now and then and writes by
 * how much they grew (records of HOST_SUM), whose sum over any stretch is its length.
 *
 * The regions that a thread is in are one number, that of a name which says "what is around it: its own name", both as numbers. */
#define _GNU_SOURCE
#include "recorder.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 2 * ROWS, NODES = 64, RECENT = 16, TRIES = 100, NOT_THERE = UINT32_MAX };
enum { USEFUL, MORE_CALLS, ALONE }; /* the first rows */

struct aggregate {
    struct sums *sums;
    uint64_t between;      /* ns that the recorder takes after a call */
    uint32_t after_call;   /* the last one */
    _Atomic uint64_t team; /* 0, or whose end makes time pass in another row than the current one: … */
    _Atomic uint32_t idle; /* … in this */
    uint16_t slots[SLOTS]; /* rows by hash, counted from 1 */
    struct { uint32_t parent, name, node; } nodes[NODES];
    struct { uint32_t node, call, row; } recent[RECENT]; /* counted from 1 too */
    _Atomic uint64_t seen_at, seen_cpu; /* the last reading of the thread's CPU clock, 0: none */
    uint64_t written[ROWS];      /* ns of each row that the recording has, on a processor … */
    uint64_t off_written[ROWS];  /* … and off it, guarded by its lock; */
    _Atomic uint64_t cut;        /* until when, seen by the thread */
};

#define GET(of) atomic_load_explicit(&(of), memory_order_relaxed)
#define SEEN(of) atomic_load_explicit(&(of), memory_order_acquire)
#define PUT(of, value) atomic_store_explicit(&(of), value, memory_order_release)
#define ADD(of, value) PUT(of, GET(of) + (value))

static void change(struct sums *sums) { ADD(sums->version, 1); }

/* --- rows --- */

static uint32_t hashed(uint32_t node, uint32_t call) {
    return (uint32_t)((((uint64_t)node << 32 | call) * 0x9e3779b97f4a7c15u) >> 32) % SLOTS;
}

static uint32_t row_of(struct aggregate *of, uint32_t node, uint32_t call, bool add) {
    uint32_t slot = hashed(node, call), used = GET(of->sums->used);
    for (uint32_t n; (n = of->slots[slot]); slot = (slot + 1) % SLOTS) {
        struct row *row = &of->sums->rows[n - 1];
        if (GET(row->node) == node && GET(row->call) == call) return n - 1;
    }
    if (!add || used == ROWS) return NOT_THERE;
    PUT(of->sums->rows[used].node, node), PUT(of->sums->rows[used].call, call);
    PUT(of->sums->used, used + 1);
    of->slots[slot] = (uint16_t)(used + 1);
    return used;
}

/* Where there is no row left it is that of the innermost region around that has one: the whole is right, and that region too. */
static uint32_t row_sought(struct aggregate *of, struct path path, uint32_t call) {
    for (uint32_t at = path.depth;; at--) {
        uint32_t row = row_of(of, at ? path.regions[at - 1].node : 0, call, true);
        if (row != NOT_THERE && at < path.depth) costs.folded++;
        if (row != NOT_THERE) return row;
        if (!at) break;
    }
    costs.folded++;
    return call ? MORE_CALLS : USEFUL;
}

static inline uint32_t row_in(struct aggregate *of, struct path path, uint32_t call) {
    uint32_t node = path.depth ? path.regions[path.depth - 1].node : 0;
    __typeof__(&of->recent[0]) known = &of->recent[(node * 5 + call) % RECENT];
    if (known->row && known->node == node && known->call == call) return known->row - 1;
    uint32_t row = row_sought(of, path, call);
    if (GET(of->sums->rows[row].node) == node) known->node = node, known->call = call, known->row = row + 1;
    return row;
}

static void took(struct row *row, uint64_t time) {
    int bin = 63 - __builtin_clzll(time | 1) - SHORTEST;
    ADD(row->histogram[bin < 0 ? 0 : bin < BINS ? bin : BINS - 1], 1);
    if (time > GET(row->longest)) PUT(row->longest, time);
}

uint32_t aggregate_node(struct aggregate *of, uint32_t parent, uint32_t name) {
    __typeof__(&of->nodes[0]) known = &of->nodes[(parent * 31 + name) % NODES];
    if (known->node && known->parent == parent && known->name == name) return known->node;
    char text[32];
    snprintf(text, sizeof text, "\x1f%u:%u", parent, name);
    known->parent = parent, known->name = name;
    return known->node = name_number(text);
}

/* --- time passes --- */

static void pass(struct sums *sums, uint64_t now) {
    uint64_t last = GET(sums->last), until = GET(sums->until);
    if (now <= last) return;
    if (until > last) {
        uint64_t then = until < now ? until : now;
        ADD(sums->rows[GET(sums->after)].time, then - last);
        last = then;
    }
    ADD(sums->rows[GET(sums->current)].time, now - last);
    PUT(sums->last, now);
}

void aggregate_until(struct aggregate *of, uint64_t now) {
    change(of->sums);
    pass(of->sums, now);
    change(of->sums);
}

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* How long the thread was off a processor since `last`, its last change of state, and within `room`: since the last reading it was so for
 * `off` ns, of which some may be of before. */
static uint64_t off_since(uint64_t seen_at, uint64_t last, uint64_t room, uint64_t off) {
    off = less(off, less(last, seen_at));
    return !seen_at ? 0 : off < room ? off : room;
}

void aggregate_seen(struct aggregate *of, const struct presence *seen, uint64_t now, uint64_t off) {
    struct sums *sums = of->sums;
    uint32_t row = GET(sums->current);
    uint64_t last = GET(sums->last), until = GET(sums->until);
    change(sums);
    pass(sums, now);
    if (!GET(sums->rows[row].call)) ADD(sums->off[row], off_since(GET(of->seen_at), last, less(now, until > last ? until : last), off));
    PUT(of->seen_at, seen->at), PUT(of->seen_cpu, seen->cpu);
    change(sums);
}

void aggregate_call(struct aggregate *of, struct path path, uint32_t call, uint64_t now, uint64_t team) {
    struct sums *sums = of->sums;
    change(sums);
    pass(sums, now);
    PUT(sums->until, 0);
    PUT(sums->current, row_in(of, path, call));
    PUT(of->team, team);
    if (team) PUT(of->idle, row_in(of, path, openmp_idle()));
    change(sums);
}

static void go_on(struct aggregate *of, struct path path, uint32_t call, uint32_t row, uint64_t now) {
    of->after_call = call;
    PUT(of->sums->after, row), PUT(of->sums->until, now + of->between);
    PUT(of->sums->current, row_in(of, path, 0));
}

void aggregate_after(struct aggregate *of, struct path path, uint32_t call, uint64_t ended) {
    if (call) go_on(of, path, call, row_in(of, path, call), ended);
}

void aggregate_called(struct aggregate *of, struct path path, uint32_t call, uint64_t start, uint64_t now) {
    struct sums *sums = of->sums;
    uint32_t row = GET(sums->current);
    change(sums);
    pass(sums, now);
    ADD(sums->rows[row].count, 1);
    took(&sums->rows[row], now - start);
    go_on(of, path, call, row, now);
    change(sums);
}

/* The current call was waiting for a team; what it was after that only now is known. */
void aggregate_waited(struct aggregate *of, struct path path, const struct waits *waits, uint64_t start) {
    struct sums *sums = of->sums;
    uint32_t row = GET(sums->current), last = 0;
    change(sums);
    pass(sums, waits->until[0]);
    ADD(sums->rows[row].count, 1);
    took(&sums->rows[row], waits->until[0] - start);
    for (uint32_t next = 1; next < 3; next++) {
        if (waits->until[next] <= waits->until[last]) continue;
        PUT(sums->current, row = row_in(of, path, waits->calls[next]));
        pass(sums, waits->until[next]);
        last = next;
    }
    PUT(of->team, 0);
    go_on(of, path, waits->calls[last], row, waits->until[2]);
    change(sums);
}

/* A call that is told of when it is over: of what was counted as something else since it began it takes nothing back, nor of what is
 * written. */
void aggregate_past(struct aggregate *of, struct path path, uint32_t call, uint64_t start, uint64_t end) {
    struct sums *sums = of->sums;
    change(sums);
    uint32_t row = row_in(of, path, call);
    if (end >= start && end >= GET(sums->last)) {
        uint64_t cut = SEEN(of->cut);
        pass(sums, start > cut ? start : cut < end ? cut : end);
        PUT(sums->until, 0), PUT(sums->current, row);
        pass(sums, end);
        go_on(of, path, call, row, end);
    }
    ADD(sums->rows[row].count, 1);
    took(&sums->rows[row], end >= start ? end - start : 0);
    change(sums);
}

/* The thread is in other regions now, and in a `call` as before, if it is in one. */
void aggregate_moved(struct aggregate *of, struct path path, uint32_t call, uint64_t now, bool entered) {
    struct sums *sums = of->sums;
    change(sums);
    pass(sums, now);
    uint32_t row = row_in(of, path, 0);
    if (entered) ADD(sums->rows[row].count, 1);
    if (GET(sums->until) > now) PUT(sums->after, row_in(of, path, of->after_call));
    PUT(sums->current, call ? row_in(of, path, call) : row);
    change(sums);
}

void aggregate_left(struct aggregate *of, uint32_t node, uint64_t time) {
    uint32_t row = row_of(of, node, 0, false);
    if (row != NOT_THERE) took(&of->sums->rows[row], time);
}

void aggregate_alone(struct aggregate *of, uint64_t now) {
    change(of->sums);
    pass(of->sums, now);
    PUT(of->sums->until, 0), PUT(of->sums->current, ALONE), PUT(of->team, 0);
    change(of->sums);
}

struct aggregate *aggregate_new(void) { return calloc(1, sizeof(struct aggregate)); }

void aggregate_begin(struct aggregate *of, struct sums *sums, uint32_t thread, uint64_t now, uint64_t between) {
    memset(of, 0, sizeof *of);
    of->sums = sums, of->between = between;
    PUT(of->cut, now);
    PUT(sums->used, 0);
    row_of(of, 0, 0, true), row_of(of, 0, name_number("MPI (more calls)"), true), row_of(of, 0, NOBODY, true);
    PUT(sums->thread, thread), PUT(sums->last, now), PUT(sums->began, now);
}

/* --- into the file --- */

struct copy { uint64_t time[ROWS], off[ROWS], last, until, team, seen_at, seen_cpu; uint32_t used, current, after, idle; };

static void copy_once(const struct aggregate *of, struct copy *copy) {
    const struct sums *sums = of->sums;
    copy->team = SEEN(of->team), copy->idle = SEEN(of->idle);
    copy->used = SEEN(sums->used), copy->current = SEEN(sums->current), copy->after = SEEN(sums->after);
    copy->last = SEEN(sums->last), copy->until = SEEN(sums->until);
    copy->seen_at = SEEN(of->seen_at), copy->seen_cpu = SEEN(of->seen_cpu);
    for (uint32_t row = 0; row < copy->used; row++) copy->time[row] = SEEN(sums->rows[row].time), copy->off[row] = SEEN(sums->off[row]);
}

/* What the thread is just about to change is looked at again. */
static bool copied(const struct aggregate *of, struct copy *copy) {
    const struct sums *sums = of->sums;
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = SEEN(sums->version);
        copy_once(of, copy);
        if (before % 2 == 0 && GET(sums->version) == before) return true;
        if (i > TRIES / 2) sched_yield();
    }
    return false;
}

/* Whoever writes looks at the CPU clock of a thread that goes on being useful, or sleeps: what it finds the thread finds again. */
static void pass_off(const struct sums *sums, struct copy *copy, uint64_t now) {
    uint64_t cpu, from = copy->until > copy->last ? copy->until : copy->last;
    if (GET(sums->rows[copy->current].call) || !copy->seen_at || now <= from || !cpu_clock_of(GET(sums->thread), &cpu)) return;
    struct presence before = {copy->seen_at, copy->seen_cpu}, after = {now, cpu};
    copy->off[copy->current] += off_since(copy->seen_at, copy->last, now - from, presence_off(&before, &after));
}

static void pass_on(struct copy *copy, uint64_t now) {
    uint64_t ended = copy->team ? team_ended(copy->team) : 0;
    if (ended) copy->after = copy->current, copy->until = ended, copy->current = copy->idle;
    if (copy->until > copy->last && now > copy->last) {
        uint64_t then = copy->until < now ? copy->until : now;
        copy->time[copy->after] += then - copy->last, copy->last = then;
    }
    if (now > copy->last) copy->time[copy->current] += now - copy->last, copy->last = now;
}

/* What can't be written now is written the next time. */
bool aggregate_write(struct aggregate *of, uint64_t at) {
    static struct copy copy;
    static struct record records[2 * ROWS];
    struct sums *sums = of->sums;
    uint32_t count = 0;
    if (!copied(of, &copy)) return false;
    pass_off(sums, &copy, at);
    pass_on(&copy, at);
    if (copy.last <= GET(of->cut)) return true;
    for (uint32_t n = 0; n < copy.used; n++) {
        struct record record = {.start = GET(of->cut), .end = copy.last, .thread = GET(sums->thread), .name = GET(sums->rows[n].call),
                                .kind = HOST_SUM, .serial = GET(sums->rows[n].node), .bytes = less(copy.time[n] - copy.off[n], of->written[n])};
        if (record.bytes) records[count++] = record;
        record.name = OFF_CPU, record.bytes = less(copy.off[n], of->off_written[n]);
        if (record.bytes) records[count++] = record;
    }
    if (!names_write() || !recording_add(HOST, 0, &(struct iovec){records, count * sizeof *records}, 1)) return false;
    for (uint32_t n = 0; n < copy.used; n++) { /* a thread may have looked at the clock before we did, and say so after */
        of->written[n] += less(copy.time[n] - copy.off[n], of->written[n]);
        of->off_written[n] += less(copy.off[n], of->off_written[n]);
    }
    PUT(of->cut, copy.last);
    costs.sums += count;
    return true;
}

/* All of the rows, as they are: the process ends. */
bool aggregate_tell(struct aggregate *of) {
    uint32_t used = GET(of->sums->used);
    struct iovec parts[2] = {{of->sums, offsetof(struct sums, rows) + used * sizeof(struct row)}, {of->sums->off, used * sizeof *of->sums->off}};
    return names_write() && recording_add(SUMS, 0, parts, 2);
}
