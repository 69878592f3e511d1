/* The recording's file: made when there is something to write, appended to chunk by chunk, each with one call of the system. */
#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

enum { HIGH = 300, PARTS = 4, READINGS = 8, CLOSE = 1000 /* ns */, PATIENCE = 2000 /* ms */ };
#define BACK_OFF 10000000000u /* ns */

static struct {
    char folder[PATH_MAX - 512], path[PATH_MAX]; /* path: "" without a file */
    _Atomic int descriptor; /* -1: no file */
    dev_t device;
    ino_t inode;
    uint64_t size;
    pid_t process;
    bool failed; /* nothing can be written any more */
} file = {.descriptor = -1};
static _Atomic bool wanted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int cancelling;
static _Atomic uint64_t stuck; /* when it could last not be had */
static char started[PATH_MAX];  /* the file that says so until there is a recording; "" for none */

bool recording_wanted(void) { return atomic_load_explicit(&wanted, memory_order_relaxed); }
bool recording_is_open(void) { return file.descriptor >= 0; }
const char *recording_path(void) { return file.path; }
uint64_t recording_size(void) { return file.size; }

/* The program may go to another folder before there is anything to write. */
static bool absolute(const char *folder) {
    char here[PATH_MAX];
    bool relative = *folder != '/';
    if (relative && !getcwd(here, sizeof here)) return false;
    int length = snprintf(file.folder, sizeof file.folder, "%s%s%s", relative ? here : "", relative ? "/" : "", folder);
    return length > 0 && (size_t)length < sizeof file.folder;
}

bool recording_to(const char *folder) {
    if (!folder || !*folder || !absolute(folder)) return false;
    file.failed = false;
    atomic_store(&wanted, true);
    return true;
}

/* A thread that is cancelled while it holds the lock would hold it for ever: so it isn't, until it gives it back. Where a disk or CUPTI
 * keeps it for long, the program isn't held up again and again. */
bool recording_lock(void) {
    int state;
    bool patient = !stuck || monotonic() - stuck > BACK_OFF;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (!lock_within(&lock, patient ? PATIENCE : 0)) {
        if (patient) stuck = monotonic();
        pthread_setcancelstate(state, NULL);
        return false;
    }
    cancelling = state;
    return true;
}

void recording_unlock(void) {
    int state = cancelling;
    pthread_mutex_unlock(&lock);
    pthread_setcancelstate(state, NULL);
}

static void host_name(char *name, size_t size) {
    if (gethostname(name, size) != 0) strcpy(name, "host");
    name[size - 1] = 0;
    for (char *c = name; *c; c++)
        if (*c == '/' || (unsigned char)*c <= ' ') *c = '_';
}

static int path_of(char *path, size_t size, const char *ending) {
    char name[65];
    host_name(name, sizeof name);
    return snprintf(path, size, "%s/%s-%d-%llx%s", file.folder, name, (int)getpid(), (unsigned long long)realtime(), ending);
}

static void mark_start(void) {
    path_of(started, sizeof started, ".started");
    int descriptor = open(started, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor >= 0) close(descriptor);
    else started[0] = 0;
}

/* A process that ends without a word before it wrote anything is known by this, to who counts them. Another thread may be making the
 * recording meanwhile, which takes the mark away. */
void recording_started(void) {
    if (!recording_lock()) return;
    if (!recording_is_open()) mark_start();
    recording_unlock();
}

/* A file of this process alone, under another name at first: it gets its own once it has its beginning. */
static int created(char *part, size_t size) {
    if (settings.make) mkdir(file.folder, 0700);
    path_of(file.path, sizeof file.path, ".ullage");
    snprintf(part, size, "%s.part", file.path);
    return open(part, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* A high number: programs that expect the lowest free one to be theirs, or that close the first few, aren't disturbed. */
int recording_moved_up(int descriptor) {
    int high = fcntl(descriptor, F_DUPFD_CLOEXEC, HIGH);
    if (high < 0) return descriptor;
    close(descriptor);
    return high;
}

static bool gave_up(const char *what) {
    problem(what, errno, file.path);
    if (file.descriptor >= 0) close(file.descriptor);
    file.descriptor = -1;
    file.path[0] = 0;
    file.failed = true;
    rings_closed();
    atomic_store(&wanted, false);
    return false;
}

static bool append(const struct iovec *parts, int count, size_t total);

static bool begun(void) {
    struct iovec magic = {"ULLAGE\x01\n", 8};
    facts_changed(), names_changed(), texts_changed();
    if (!append(&magic, 1, 8) || !facts_begin()) return false;
    recording_clocks(); /* a process that is killed before the next time has its records dated by these */
    return true;
}

bool recording_open(void) {
    if (file.descriptor >= 0) return true;
    if (file.failed || !recording_wanted()) return false;
    char part[PATH_MAX + 8];
    struct stat seen;
    int descriptor = created(part, sizeof part);
    if (descriptor < 0 || fstat(descriptor, &seen) != 0) return gave_up("open");
    file.descriptor = recording_moved_up(descriptor);
    file.device = seen.st_dev, file.inode = seen.st_ino, file.size = 0, file.process = getpid();
    if (begun() && rename(part, file.path) == 0) {
        if (*started) unlink(started), started[0] = 0;
        return true;
    }
    unlink(part);
    return gave_up("write");
}

/* The program may have closed our descriptor, and opened a file of its own by that number. */
static bool is_ours(int descriptor) {
    struct stat seen;
    return descriptor >= 0 && fstat(descriptor, &seen) == 0 && seen.st_dev == file.device && seen.st_ino == file.inode;
}

/* A process that was forked past the C library must not write into its parent's. */
static bool still_ours(void) {
    if (getpid() != file.process) return false;
    if (is_ours(file.descriptor)) return true;
    int again = open(file.path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    file.descriptor = is_ours(again) ? recording_moved_up(again) : -1;
    if (file.descriptor >= 0) return true;
    if (again >= 0) close(again);
    return gave_up("reopen");
}

/* A full disk would harm the program's own files. */
bool recording_disk_has(int descriptor, uint64_t total) {
    struct statvfs disk;
    return fstatvfs(descriptor, &disk) != 0 || (uint64_t)disk.f_bavail * disk.f_frsize >= settings.reserve + total;
}

/* What says who this is and how it ended is small, and may take of what is kept free. */
static bool disk_has(enum chunk type, size_t total) {
    if (type == INFO || type == END || recording_disk_has(file.descriptor, total)) return true;
    problem("write", ENOSPC, file.path);
    return false;
}

/* Past the limit on a file's size the program would get a signal that ends it. */
static ssize_t written(const struct iovec *parts, int count, size_t total) {
    struct rlimit limit;
    ssize_t done;
    errno = EFBIG;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && file.size + total > limit.rlim_cur) return -1;
    do done = writev(file.descriptor, parts, count);
    while (done < 0 && errno == EINTR);
    if (done >= 0 && done < (ssize_t)total) errno = ENOSPC;
    return done;
}

/* A chunk that was cut is taken back, so that what comes later can be found. */
static bool append(const struct iovec *parts, int count, size_t total) {
    ssize_t done = written(parts, count, total);
    if (done == (ssize_t)total) {
        file.size += total;
        return true;
    }
    problem("write", errno, file.path);
    if (done > 0 && ftruncate(file.descriptor, (off_t)file.size) != 0) gave_up("ftruncate");
    return false;
}

bool recording_add(enum chunk type, uint16_t flags, const struct iovec *parts, int count) {
    static const char zeros[8];
    struct __attribute__((packed)) { char mark[4]; uint16_t type, flags; uint64_t length; } header = {"ULCH", type, flags, 0};
    struct iovec all[PARTS + 2] = {{&header, sizeof header}};
    for (int i = 0; i < count && i < PARTS; i++) header.length += (all[i + 1] = parts[i]).iov_len;
    size_t padding = -header.length % 8, total = sizeof header + header.length + padding;
    all[count + 1] = (struct iovec){(void *)zeros, padding};
    if (recording_open() && !file.failed && still_ours() && disk_has(type, total) && append(all, count + 2, total)) return true;
    costs.lost_bytes += header.length;
    return false;
}

/* Three clocks can't be read at once: of a few readings the one counts between which the least time passed. */
void recording_clocks(void) {
    uint64_t clocks[3] = {0}, least = UINT64_MAX;
    for (int attempt = 0; attempt < READINGS && least > CLOSE; attempt++) {
        uint64_t before = monotonic(), cupti = activity_time(), real = realtime(), took = monotonic() - before;
        if (took >= least) continue;
        least = took;
        clocks[0] = cupti, clocks[1] = real, clocks[2] = before + took / 2;
    }
    recording_add(CLOCKS, 0, &(struct iovec){clocks, sizeof clocks}, 1);
}

void recording_close(void) {
    if (is_ours(file.descriptor)) close(file.descriptor);
    file.descriptor = -1;
    facts_closed(), rings_closed(), host_closed(), nccl_closed(), useful_from_now();
    atomic_store(&wanted, false);
}

/* In the child of a fork: the file is the parent's; ours is made when there is something to write. */
void recording_forked(void) {
    pthread_mutex_init(&lock, NULL);
    if (is_ours(file.descriptor)) close(file.descriptor);
    file.descriptor = -1;
    file.path[0] = started[0] = 0;
}
