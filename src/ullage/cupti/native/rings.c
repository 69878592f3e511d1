/* The rings that threads record into, in a file beside the recording that is mapped into memory: what a thread has put into its ring
 * is the system's to keep, whatever ends the process. When all of it is written the file is removed.
 *
 *   struct header      names that the recording doesn't have yet, as in NAMES of chunks.py      rings, each at a page
 *
 * Where it can't be so (a file system over a network, where a page may take long to be had; a full disk, where a page that isn't
 * there ends the program), rings are memory of the process alone. Forks share the file's pages with their parents. So one page of
 * memory is wiped in whatever is forked, also past the C library: where it isn't what it was, the rings are somebody else's.
 * All with the recording's lock held, but for `rings_mine`, and `rings_name`, which is called with that of the names. */
#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif

enum { NAMES_ROOM = 1 << 18, MOST_RINGS = 1 << 14 };

struct header { /* as in rings.py */
    char magic[8];
    uint32_t record, room, stride, names_at, names_room, rings_at;
    _Atomic uint32_t names, rings; /* bytes of names; how many rings */
};

static struct { char path[PATH_MAX + 8]; dev_t device; ino_t inode; bool failed; } file;
static _Atomic(struct header *) header; /* NULL: no file */
static _Atomic uint32_t without = 1, *_Atomic mine = &without; /* 0 in a process that was forked since */
static uint32_t generation = 1;

uint32_t rings_mine(void) { return atomic_load_explicit(atomic_load_explicit(&mine, memory_order_relaxed), memory_order_relaxed); }

static uint32_t pages(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (uint32_t)((bytes + page - 1) / page * page);
}

static void *memory(size_t count, int how, int descriptor, uint64_t from) {
    void *at = mmap(NULL, count, PROT_READ | PROT_WRITE, how, descriptor, (off_t)from);
    return at == MAP_FAILED ? NULL : at;
}

static void *private_memory(size_t count) { return memory(count, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

/* --- the file --- */

static bool guarded(void) {
    if (mine != &without) return true;
    uint32_t *page = private_memory(pages(1));
    if (!page) return false;
    if (madvise(page, pages(1), MADV_WIPEONFORK) != 0) {
        munmap(page, pages(1));
        return false;
    }
    *page = generation;
    mine = (_Atomic uint32_t *)page;
    return true;
}

/* A page that was written to disk is asked for again when it is next stored to: only a file system of this machine answers soon. */
static bool near(int descriptor) {
    static const uint32_t known[] = {0xef53, 0x58465342, 0x9123683e, 0x01021994, 0x858458f6, 0x794c7630, 0xf2f52010, 0x2fc12fc1};
    struct statfs disk; /* ext, XFS, Btrfs, tmpfs, ramfs, overlay, F2FS, ZFS */
    if (fstatfs(descriptor, &disk) != 0) return false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if ((uint32_t)disk.f_type == known[i]) return true;
    errno = EREMOTE;
    return false;
}

/* Bytes that are really there: to store to a page that the disk has no room for would end the program. */
static bool has_room(int descriptor, uint64_t from, uint64_t count) {
    struct rlimit limit;
    if (!recording_disk_has(descriptor, count)) errno = ENOSPC;
    else if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && from + count > limit.rlim_cur) errno = EFBIG;
    else return fallocate(descriptor, 0, (off_t)from, (off_t)count) == 0;
    return false;
}

static void *mapped(int descriptor, uint64_t from, size_t count) {
    return has_room(descriptor, from, count) ? memory(count, MAP_SHARED, descriptor, from) : NULL;
}

static bool no_file(void) {
    problem("rings", errno, file.path);
    file.failed = true;
    return false;
}

static struct header *laid_out(int descriptor) {
    struct stat seen;
    if (!near(descriptor) || fstat(descriptor, &seen) != 0) return NULL;
    uint32_t names_at = sizeof(struct header), rings_at = pages(NAMES_ROOM);
    struct header *made = mapped(descriptor, 0, rings_at);
    if (!made) return NULL;
    file.device = seen.st_dev, file.inode = seen.st_ino;
    *made = (struct header){"ULRINGS\x01", sizeof(struct record), ROOM, pages(sizeof(struct ring)), names_at, rings_at - names_at, rings_at, 0, 0};
    return made;
}

static bool begun(void) {
    if (atomic_load(&header)) return true;
    if (file.failed || !recording_open()) return false;
    snprintf(file.path, sizeof file.path, "%s.rings", recording_path());
    int descriptor = !guarded() ? -1 : open(file.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0) return no_file();
    struct header *made = laid_out(descriptor);
    close(descriptor);
    if (!made) return no_file(), unlink(file.path), false;
    atomic_store(&header, made);
    names_into_rings();
    return true;
}

/* By its name, each time: programs close descriptors that they don't know. */
static int reopened(void) {
    struct stat seen;
    int descriptor = open(file.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor < 0 || (fstat(descriptor, &seen) == 0 && seen.st_dev == file.device && seen.st_ino == file.inode)) return descriptor;
    close(descriptor);
    errno = ESTALE;
    return -1;
}

/* --- rings --- */

static struct ring *shared(void) {
    if (!begun()) return NULL;
    struct header *here = atomic_load(&header);
    uint32_t count = atomic_load(&here->rings);
    int descriptor = count < MOST_RINGS ? reopened() : -1;
    if (descriptor < 0) return NULL;
    struct ring *ring = mapped(descriptor, here->rings_at + (uint64_t)count * here->stride, here->stride);
    close(descriptor);
    if (ring) atomic_store_explicit(&here->rings, count + 1, memory_order_release);
    else no_file();
    return ring;
}

struct ring *rings_add(void) {
    struct ring *ring = shared();
    return ring ? ring : private_memory(pages(sizeof *ring));
}

void rings_give_back(struct ring *ring) {
    if (ring) munmap(ring, pages(sizeof *ring));
}

/* What doesn't fit has no name in what a killed process leaves. */
void rings_name(uint64_t number, const char *text, uint32_t length) {
    struct header *here = rings_mine() ? atomic_load(&header) : NULL;
    uint32_t used = here ? atomic_load(&here->names) : 0;
    if (!here || used + sizeof number + sizeof length + length > here->names_room) return;
    char *at = (char *)here + here->names_at + used;
    memcpy(at, &number, sizeof number), memcpy(at + sizeof number, &length, sizeof length);
    memcpy(at + sizeof number + sizeof length, text, length);
    atomic_store_explicit(&here->names, used + (uint32_t)(sizeof number + sizeof length) + length, memory_order_release);
}

void rings_forget_names(void) {
    struct header *here = rings_mine() ? atomic_load(&header) : NULL;
    if (here) atomic_store(&here->names, 0);
}

/* The threads go on with the rings that they have until they next record; what they put there is nobody's. */
void rings_remove(void) {
    if (rings_mine() && atomic_load(&header)) unlink(file.path);
    file.failed = true;
}

/* The next ring is one of another recording, and those that there are nobody's. In the child of a fork too: there the names' lock is free. */
void rings_closed(void) {
    names_before_fork();
    struct header *here = atomic_exchange(&header, NULL);
    names_after_fork(false);
    if (here) munmap(here, pages(NAMES_ROOM));
    file.failed = false;
    *mine = ++generation ? generation : ++generation;
}
