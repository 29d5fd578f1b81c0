/* Stands between a process and its files (LD_PRELOAD): records what it changes below some folders, and what it makes durable.
 *
 * What always holds: a call stands in the record before its caller continues, with its bytes and with the times when it began and
 * ended, so the record outlives the process; a call that failed is not in it. When the process is cut, no further call begins,
 * and none returns: whoever waits for a sync never learns that it ended. `under_way` counts the calls that have not ended. A
 * process that ends itself by SIGKILL or _exit is cut before. What cannot be seen from here: calls that libc makes on its own
 * behalf (stdio), raw system calls, memory that is mapped and written, and the last calls of a process that aborts.
 * The table is that of table.py, which writes it; the record is read by record.py. All of them lay it out in the same way.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#include "../disk_faults/next.h"

enum { WROTE = 1, SIZED, ALLOCATED, SYNCED, MADE_FILE, MADE_FOLDER, LINKED, RENAMED, GONE }; /* kinds of records */
enum { FOLDERS = 8, LIVES = 1024, NAME = 464, PARTS = 64 };
enum { END_MS = 5000 }; /* for calls that are under way when the process ends itself */

struct life { /* of one process */
    _Atomic int32_t pid;
    _Atomic uint32_t cut;
    _Atomic int32_t under_way;
    _Atomic uint32_t missing; /* records that could not be written */
};

struct table {
    char magic[8];
    char record[NAME];
    char folders[FOLDERS][NAME];
    struct life lives[LIVES];
};

struct head { /* of a record; behind it: the path, the other path, and the bytes that were written */
    uint64_t bytes; /* of the whole record */
    uint64_t began_ns, ended_ns;
    uint64_t inode;
    int64_t at; /* the offset of a write; a length */
    uint32_t kind, is_synced;
    uint32_t path_bytes, other_bytes;
};

static const char MAGIC[8] = "pwrlss1";
static const struct table *table;
static struct life *life;
static int record_file = -1;
static pthread_mutex_t names = PTHREAD_MUTEX_INITIALIZER; /* names change in the order in which they stand in the record */

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("POWER_LOSS_TABLE");
    struct stat seen;
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    struct table *found = MAP_FAILED;
    if (file >= 0 && fstat(file, &seen) == 0 && seen.st_size == sizeof *found)
        found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (found == MAP_FAILED || memcmp(found->magic, MAGIC, sizeof MAGIC) != 0) {
        dprintf(2, "power loss: no table at %s (POWER_LOSS_TABLE): nothing is recorded\n", path ? path : "(unset)");
        return;
    }
    record_file = open(found->record, O_WRONLY | O_APPEND | O_CLOEXEC);
    for (int at = 0; record_file >= 0 && at < LIVES && !life; at++) {
        int32_t nobody = 0;
        if (atomic_compare_exchange_strong(&found->lives[at].pid, &nobody, getpid()))
            life = &found->lives[at];
    }
    if (life)
        table = found;
    else
        dprintf(2, "power loss: %s cannot be opened, or %d processes were recorded already\n", found->record, LIVES);
}

static int is_watched(const char *path) {
    for (int at = 0; at < FOLDERS && table->folders[at][0]; at++) {
        size_t length = strlen(table->folders[at]);
        if (strncmp(path, table->folders[at], length) == 0 && (path[length] == 0 || path[length] == '/'))
            return 1;
    }
    return 0;
}

/* Returns whether the descriptor is that of a watched file or folder, also of one whose name is gone. */
static int descriptor_is_watched(int descriptor, struct stat *seen) {
    char link[32], path[PATH_MAX];
    if (!table || fstat(descriptor, seen) != 0 || !(S_ISREG(seen->st_mode) || S_ISDIR(seen->st_mode)))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return is_watched(path);
}

static int path_is_watched(int folder, const char *path, char out[PATH_MAX]) {
    if (!table)
        return 0;
    resolve(folder, path, out);
    return is_watched(out);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The call has ended. In a process that is cut, its caller waits for the end. */
static void leave(void) {
    atomic_fetch_sub(&life->under_way, 1);
    while (atomic_load(&life->cut))
        pause();
}

/* Begins a call, unless the process is cut. Returns the time. */
static uint64_t begin(void) {
    atomic_fetch_add(&life->under_way, 1);
    if (atomic_load(&life->cut))
        leave();
    return now_ns();
}

/* Writes a call down: one that failed (`result` below 0) leaves nothing. Keeps errno. */
static void note(long result, struct head head, const char *path, const char *other, const struct iovec *parts, int count) {
    int kept = errno;
    if (result >= 0) {
        size_t left = head.kind == WROTE ? (size_t)result : 0;
        head.ended_ns = now_ns();
        head.path_bytes = path ? strlen(path) : 0;
        head.other_bytes = other ? strlen(other) : 0;
        head.bytes = sizeof head + head.path_bytes + head.other_bytes + left;
        struct iovec few[PARTS], *all = count + 3 <= PARTS ? few : malloc((count + 3) * sizeof *all);
        int used = 0;
        if (all) {
            all[used++] = (struct iovec){&head, sizeof head};
            all[used++] = (struct iovec){(void *)path, head.path_bytes};
            all[used++] = (struct iovec){(void *)other, head.other_bytes};
        }
        for (int at = 0; all && at < count && left; at++, used++) {
            all[used] = (struct iovec){parts[at].iov_base, parts[at].iov_len < left ? parts[at].iov_len : left};
            left -= all[used].iov_len;
        }
        char *whole = NULL;
        if (all && used > IOV_MAX && (whole = malloc(head.bytes))) { /* more parts than one call takes */
            char *to = whole;
            for (int at = 0; at < used; to += all[at++].iov_len)
                memcpy(to, all[at].iov_base, all[at].iov_len);
            all[0] = (struct iovec){whole, head.bytes};
            used = 1;
        }
        if (!all || syscall(SYS_writev, record_file, all, used) != (long)head.bytes)
            atomic_fetch_add(&life->missing, 1);
        free(whole);
        if (all != few)
            free(all);
    }
    errno = kept;
}

/* ---- writing */
static int syncs(int descriptor) { return fcntl(descriptor, F_GETFL) & O_DSYNC ? 1 : 0; } /* O_SYNC has this bit, too */

/* `offset` -1: where the descriptor stood. */
static void wrote(ssize_t result, int descriptor, struct head head, off_t offset, const struct iovec *parts, int count) {
    int kept = errno;
    head.at = offset >= 0 ? offset : lseek(descriptor, 0, SEEK_CUR) - (result > 0 ? result : 0);
    head.is_synced |= syncs(descriptor);
    errno = kept;
    note(result, head, NULL, NULL, parts, count);
    leave();
}

#define WRITES(call, offset, flags, parts, count)                                       \
    do {                                                                                \
        struct stat seen;                                                               \
        if (!descriptor_is_watched(descriptor, &seen))                                  \
            return call;                                                                \
        struct head head = {.kind = WROTE, .inode = seen.st_ino, .began_ns = begin()};  \
        head.is_synced = ((flags) & (RWF_DSYNC | RWF_SYNC)) != 0;                       \
        ssize_t result = call;                                                          \
        wrote(result, descriptor, head, offset, parts, count);                          \
        return result;                                                                  \
    } while (0)

ssize_t write(int descriptor, const void *data, size_t bytes) {
    NEXT(ssize_t, write, int, const void *, size_t);
    struct iovec part = {(void *)data, bytes};
    WRITES(next(descriptor, data, bytes), -1, 0, &part, 1);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    NEXT(ssize_t, writev, int, const struct iovec *, int);
    WRITES(next(descriptor, parts, count), -1, 0, parts, count);
}

#define PWRITES(name)                                                            \
    ssize_t name(int descriptor, const void *data, size_t bytes, off_t offset) { \
        NEXT(ssize_t, name, int, const void *, size_t, off_t);                   \
        struct iovec part = {(void *)data, bytes};                               \
        WRITES(next(descriptor, data, bytes, offset), offset, 0, &part, 1);      \
    }
PWRITES(pwrite)
PWRITES(pwrite64)

#define PWRITESV2(name)                                                                           \
    ssize_t name(int descriptor, const struct iovec *parts, int count, off_t offset, int flags) { \
        NEXT(ssize_t, name, int, const struct iovec *, int, off_t, int);                          \
        WRITES(next(descriptor, parts, count, offset, flags), offset, flags, parts, count);       \
    }
PWRITESV2(pwritev2)
PWRITESV2(pwritev64v2)

/* A call on a descriptor that gives 0, or else has changed nothing. */
#define CHANGES(kind_, length, call)                                                                    \
    do {                                                                                                \
        struct stat seen;                                                                               \
        if (!descriptor_is_watched(descriptor, &seen))                                                  \
            return call;                                                                                \
        struct head head = {.kind = kind_, .inode = seen.st_ino, .at = length, .began_ns = begin()};    \
        int result = call;                                                                              \
        note(result == 0 ? 0 : -1, head, NULL, NULL, NULL, 0);                                          \
        leave();                                                                                        \
        return result;                                                                                  \
    } while (0)

#define TRUNCATES(name)                         \
    int name(int descriptor, off_t size) {      \
        NEXT(int, name, int, off_t);            \
        CHANGES(SIZED, size, next(descriptor, size)); \
    }
TRUNCATES(ftruncate)
TRUNCATES(ftruncate64)

#define ALLOCATES(name)                                                            \
    int name(int descriptor, off_t offset, off_t bytes) {                          \
        NEXT(int, name, int, off_t, off_t);                                        \
        CHANGES(ALLOCATED, offset + bytes, next(descriptor, offset, bytes));       \
    }
ALLOCATES(posix_fallocate)
ALLOCATES(posix_fallocate64)

#define SYNCS(name)                            \
    int name(int descriptor) {                 \
        NEXT(int, name, int);                  \
        CHANGES(SYNCED, 0, next(descriptor));  \
    }
SYNCS(fsync)
SYNCS(fdatasync)

/* ---- opening, where it makes a file or empties one */
typedef int opener(int folder, const char *path, int flags, mode_t mode);

static int opened(opener *call, int folder, const char *path, int flags, mode_t mode) {
    char resolved[PATH_MAX];
    if (!(flags & (O_CREAT | O_TRUNC)) || !path_is_watched(folder, path, resolved))
        return call(folder, path, flags, mode);
    struct head head = {.kind = MADE_FILE, .began_ns = begin()};
    struct stat seen;
    pthread_mutex_lock(&names);
    int made = flags & O_CREAT, descriptor = call(folder, path, made ? flags | O_EXCL : flags, mode);
    if (made && descriptor < 0 && errno == EEXIST && !(flags & O_EXCL)) {
        made = 0;
        descriptor = call(folder, path, flags, mode);
    }
    if (!made)
        head.kind = SIZED;
    int kept = errno, changed = descriptor >= 0 && (made || flags & O_TRUNC) && fstat(descriptor, &seen) == 0;
    if (changed)
        head.inode = seen.st_ino;
    errno = kept;
    note(changed ? 0 : -1, head, made ? resolved : NULL, NULL, NULL, 0);
    pthread_mutex_unlock(&names);
    leave();
    return descriptor;
}

#define OPENS(name)                                                                                    \
    static int next_##name(int folder, const char *path, int flags, mode_t mode) {                     \
        NEXT(int, name, const char *, int, mode_t);                                                    \
        (void)folder;                                                                                  \
        return next(path, flags, mode);                                                                \
    }                                                                                                  \
    int name(const char *path, int flags, ...) {                                                       \
        va_list rest;                                                                                  \
        va_start(rest, flags);                                                                         \
        mode_t mode = va_arg(rest, mode_t);                                                            \
        va_end(rest);                                                                                  \
        return opened(next_##name, AT_FDCWD, path, flags, mode);                                       \
    }
#define OPENS_AT(name)                                                                                 \
    static int next_##name(int folder, const char *path, int flags, mode_t mode) {                     \
        NEXT(int, name, int, const char *, int, mode_t);                                               \
        return next(folder, path, flags, mode);                                                        \
    }                                                                                                  \
    int name(int folder, const char *path, int flags, ...) {                                           \
        va_list rest;                                                                                  \
        va_start(rest, flags);                                                                         \
        mode_t mode = va_arg(rest, mode_t);                                                            \
        va_end(rest);                                                                                  \
        return opened(next_##name, folder, path, flags, mode);                                         \
    }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

/* ---- names */
struct named {
    struct head head;
    char path[PATH_MAX], other[PATH_MAX];
};

/* Begins a call that changes names, where a watched one is among them. */
static int naming(struct named *call, uint32_t kind, int folder, const char *path, const char *other) {
    call->head = (struct head){.kind = kind};
    call->other[0] = 0;
    int watched = path_is_watched(folder, path, call->path);
    if (kind == LINKED || kind == RENAMED)
        watched |= path_is_watched(AT_FDCWD, other, call->other);
    if (!watched)
        return 0;
    call->head.began_ns = begin();
    pthread_mutex_lock(&names);
    return 1;
}

/* Ends it; returns its result, which is 0, or nothing has changed. */
static int named(struct named *call, int result) {
    struct stat seen;
    int kept = errno;
    if (call->head.kind == MADE_FOLDER && result == 0 && lstat(call->path, &seen) == 0)
        call->head.inode = seen.st_ino;
    errno = kept;
    note(result, call->head, call->path, call->other, NULL, 0);
    pthread_mutex_unlock(&names);
    leave();
    return result;
}

#define ON_A_NAME(name)                                                                               \
    int name(const char *path) {                                                                      \
        NEXT(int, name, const char *);                                                                \
        struct named call;                                                                            \
        return naming(&call, GONE, AT_FDCWD, path, "") ? named(&call, next(path)) : next(path);       \
    }
ON_A_NAME(unlink)
ON_A_NAME(rmdir)

int unlinkat(int folder, const char *path, int flags) {
    NEXT(int, unlinkat, int, const char *, int);
    struct named call;
    return naming(&call, GONE, folder, path, "") ? named(&call, next(folder, path, flags)) : next(folder, path, flags);
}

#define ON_TWO_NAMES(name, kind)                                                                      \
    int name(const char *old, const char *new) {                                                      \
        NEXT(int, name, const char *, const char *);                                                  \
        struct named call;                                                                            \
        return naming(&call, kind, AT_FDCWD, old, new) ? named(&call, next(old, new)) : next(old, new); \
    }
ON_TWO_NAMES(rename, RENAMED)
ON_TWO_NAMES(link, LINKED)

int mkdir(const char *path, mode_t mode) {
    NEXT(int, mkdir, const char *, mode_t);
    struct named call;
    return naming(&call, MADE_FOLDER, AT_FDCWD, path, "") ? named(&call, next(path, mode)) : next(path, mode);
}

/* ---- the end by its own hand: what other threads do to files by then stands in the record, or is not done */
static void cut_itself(void) {
    if (!table || atomic_load(&life->pid) != getpid()) /* a child that has not become another program shares this memory */
        return;
    atomic_store(&life->cut, 1);
    for (int waited = 0; waited < END_MS && atomic_load(&life->under_way); waited++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int kill(pid_t process, int number) {
    NEXT(int, kill, pid_t, int);
    if (number == SIGKILL && process == getpid())
        cut_itself();
    return next(process, number);
}

void _exit(int code) {
    NEXT(void, _exit, int);
    cut_itself();
    next(code);
    __builtin_unreachable();
}
