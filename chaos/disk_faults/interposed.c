/* Stands between a process and its files (LD_PRELOAD): delays, fails, fills and freezes calls on paths that rules name.
 *
 * What always holds: without a rule in force a call costs one look at a counter in shared memory; a rule counts for each call
 * that begins after it was put in force, and for none that begins after it was taken away; a frozen call continues then; a table
 * that is missing or broken is reported on standard error, and no call is touched. What cannot be seen from here: calls that
 * libc makes on its own behalf (stdio: fwrite, fclose), raw system calls, and memory that is mapped and written.
 * The table is that of control.py, which writes it; both lay it out in the same way.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "next.h"

enum { LOOK = 1, OPEN = 2, MAKE = 4, DROP = 8, WRITE = 16, SYNC = 32 }; /* kinds of calls */
enum { SLOW = 1, FAIL = 2, FREEZE = 3, FULL = 4, FAIL_SYNC = 5 };       /* actions */
enum { RULES = 16, DESCRIPTORS = 65536 };

struct rule {
    _Atomic uint64_t number; /* grows; 0: not in force. It changes with whatever stands below. */
    uint32_t action, kinds;
    int32_t error;
    uint32_t delay_us;
    _Atomic int64_t left; /* FULL: bytes that fit; FAIL_SYNC: syncs that still succeed */
    _Atomic uint64_t hits, again;
    char prefix[464];
};

struct table {
    char magic[8];
    _Atomic uint64_t in_force;
    struct rule rules[RULES];
};

struct call { /* `path` is empty where no path is known, as for a socket */
    int kinds, descriptor;
    off_t offset; /* of a write; -1: where the descriptor stands */
    size_t bytes;
    char path[PATH_MAX];
};

static const char MAGIC[8] = "dskflt1";
static struct table *table;
static _Atomic uint64_t failed_sync[DESCRIPTORS]; /* the rule by which a sync of this descriptor failed */

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("DISK_FAULTS_TABLE");
    struct stat seen;
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) {
        dprintf(2, "disk faults: no table at %s (DISK_FAULTS_TABLE): no fault will happen\n", path ? path : "(unset)");
        return;
    }
    struct table *found = MAP_FAILED;
    if (fstat(file, &seen) == 0 && seen.st_size == sizeof *found)
        found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (found == MAP_FAILED || memcmp(found->magic, MAGIC, sizeof MAGIC) != 0) {
        dprintf(2, "disk faults: %s is no table of rules: no fault will happen\n", path);
        if (found != MAP_FAILED)
            munmap(found, sizeof *found);
        return;
    }
    table = found;
}

static int in_force(void) { return table && atomic_load(&table->in_force); }

static void sleep_us(uint64_t us) {
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static off_t growth(const struct call *call) {
    struct stat seen;
    if (fstat(call->descriptor, &seen) != 0)
        return 0;
    off_t offset = call->offset;
    if (offset < 0)
        offset = fcntl(call->descriptor, F_GETFL) & O_APPEND ? seen.st_size : lseek(call->descriptor, 0, SEEK_CUR);
    off_t grown = offset + (off_t)call->bytes - seen.st_size;
    return grown > 0 ? grown : 0;
}

/* Returns the rule's number when it counts for the call, with its constants; 0 when it does not. */
static uint64_t counts(struct rule *rule, const struct call *call, struct rule *constants) {
    uint64_t number;
    int matches;
    do {
        if ((number = atomic_load(&rule->number)) == 0)
            return 0;
        memcpy(constants, rule, sizeof *constants);
        constants->prefix[sizeof constants->prefix - 1] = 0;
        matches = strncmp(call->path, constants->prefix, strlen(constants->prefix)) == 0;
    } while (atomic_load(&rule->number) != number);
    return matches && constants->kinds & call->kinds ? number : 0;
}

static int takes_space(struct rule *rule, const struct call *call) {
    int64_t wanted = growth(call), left = atomic_load(&rule->left);
    do {
        if (wanted > left)
            return 0;
    } while (!atomic_compare_exchange_weak(&rule->left, &left, left - wanted));
    return 1;
}

/* Returns 0 when the call is to be made, else the error with which it fails. */
static int judged(struct call *call) {
    int has_descriptor = call->descriptor >= 0 && call->descriptor < DESCRIPTORS;
    for (int at = 0; call->path[0] && at < RULES; at++) {
        struct rule *rule = &table->rules[at], constants;
        uint64_t number = counts(rule, call, &constants);
        if (!number)
            continue;
        if (constants.action == FAIL_SYNC) {
            if (has_descriptor && atomic_load(&failed_sync[call->descriptor]) == number)
                atomic_fetch_add(&rule->again, 1);
            if (!(call->kinds & SYNC) || atomic_fetch_sub(&rule->left, 1) != 0)
                continue;
            if (has_descriptor)
                atomic_store(&failed_sync[call->descriptor], number);
        } else if (constants.action == FULL && takes_space(rule, call))
            continue;
        atomic_fetch_add(&rule->hits, 1);
        if (constants.action == SLOW)
            sleep_us(constants.delay_us);
        else if (constants.action == FREEZE)
            while (atomic_load(&rule->number) == number)
                sleep_us(2000);
        else
            return constants.error;
    }
    return 0;
}

static int on_descriptor(int descriptor, int kinds, off_t offset, size_t bytes) {
    char link[32];
    struct call call = {.kinds = kinds, .descriptor = descriptor, .offset = offset, .bytes = bytes};
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, call.path, sizeof call.path - 1);
    if (length <= 0 || call.path[0] != '/')
        return 0;
    call.path[length] = 0;
    return judged(&call);
}

static int on_path(int folder, const char *path, int kinds) {
    struct call call = {.kinds = kinds, .descriptor = -1};
    resolve(folder, path, call.path);
    return judged(&call);
}

/* What goes away makes room on a disk that is full. */
static void give_back(const char *path, off_t bytes) {
    struct call call = {.kinds = WRITE, .descriptor = -1};
    struct rule constants;
    snprintf(call.path, sizeof call.path, "%s", path);
    for (int at = 0; bytes > 0 && at < RULES; at++)
        if (counts(&table->rules[at], &call, &constants) && constants.action == FULL)
            atomic_fetch_add(&table->rules[at].left, bytes);
}

static off_t only_here(const char *path) {
    struct statx seen;
    int known = statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &seen) == 0;
    return known && S_ISREG(seen.stx_mode) && seen.stx_nlink == 1 ? (off_t)seen.stx_size : 0;
}

#define REFUSE(error, failure)          \
    do {                                \
        int refused = in_force() ? (error) : 0; \
        if (refused) {                  \
            errno = refused;            \
            return failure;             \
        }                               \
    } while (0)

/* ---- opening */
static int opening(int folder, const char *path, int flags) {
    int writes = (flags & O_ACCMODE) != O_RDONLY, error;
    if ((error = on_path(folder, path, flags & (O_CREAT | O_TRUNC) ? MAKE : writes ? OPEN : LOOK)))
        return error;
    if (flags & O_TRUNC && writes) {
        char resolved[PATH_MAX];
        resolve(folder, path, resolved);
        give_back(resolved, only_here(resolved));
    }
    return 0;
}

#define OPENS(name)                                   \
    int name(const char *path, int flags, ...) {      \
        va_list rest;                                 \
        va_start(rest, flags);                        \
        mode_t mode = va_arg(rest, mode_t);           \
        va_end(rest);                                 \
        NEXT(int, name, const char *, int, mode_t);   \
        REFUSE(opening(AT_FDCWD, path, flags), -1);   \
        return next(path, flags, mode);               \
    }
#define OPENS_AT(name)                                     \
    int name(int folder, const char *path, int flags, ...) { \
        va_list rest;                                      \
        va_start(rest, flags);                             \
        mode_t mode = va_arg(rest, mode_t);                \
        va_end(rest);                                      \
        NEXT(int, name, int, const char *, int, mode_t);   \
        REFUSE(opening(folder, path, flags), -1);          \
        return next(folder, path, flags, mode);            \
    }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

int close(int descriptor) {
    NEXT(int, close, int);
    if (descriptor >= 0 && descriptor < DESCRIPTORS)
        atomic_store(&failed_sync[descriptor], 0);
    return next(descriptor);
}

/* ---- writing */
ssize_t write(int descriptor, const void *data, size_t bytes) {
    NEXT(ssize_t, write, int, const void *, size_t);
    REFUSE(on_descriptor(descriptor, WRITE, -1, bytes), -1);
    return next(descriptor, data, bytes);
}

static size_t total(const struct iovec *parts, int count) {
    size_t bytes = 0;
    for (int at = 0; at < count; at++)
        bytes += parts[at].iov_len;
    return bytes;
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    NEXT(ssize_t, writev, int, const struct iovec *, int);
    REFUSE(on_descriptor(descriptor, WRITE, -1, total(parts, count)), -1);
    return next(descriptor, parts, count);
}

#define PWRITES(name)                                                             \
    ssize_t name(int descriptor, const void *data, size_t bytes, off_t offset) {  \
        NEXT(ssize_t, name, int, const void *, size_t, off_t);                    \
        REFUSE(on_descriptor(descriptor, WRITE, offset, bytes), -1);              \
        return next(descriptor, data, bytes, offset);                             \
    }
PWRITES(pwrite)
PWRITES(pwrite64)

/* A sync that fails in the call that writes leaves what was written in the file, as a kernel does. */
#define PWRITESV2(name)                                                                                  \
    ssize_t name(int descriptor, const struct iovec *parts, int count, off_t offset, int flags) {        \
        NEXT(ssize_t, name, int, const struct iovec *, int, off_t, int);                                 \
        size_t bytes = total(parts, count);                                                              \
        REFUSE(on_descriptor(descriptor, WRITE, offset, bytes), -1);                                     \
        int syncs = flags & (RWF_DSYNC | RWF_SYNC);                                                      \
        int error = syncs && in_force() ? on_descriptor(descriptor, SYNC, offset, bytes) : 0;            \
        ssize_t written = next(descriptor, parts, count, offset, error ? flags & ~(RWF_DSYNC | RWF_SYNC) : flags); \
        if (error)                                                                                       \
            errno = error;                                                                               \
        return error ? -1 : written;                                                                     \
    }
PWRITESV2(pwritev2)
PWRITESV2(pwritev64v2)

#define TRUNCATES(name)                                                            \
    int name(int descriptor, off_t size) {                                         \
        NEXT(int, name, int, off_t);                                               \
        REFUSE(on_descriptor(descriptor, WRITE, 0, 0), -1);                        \
        struct call call = {.descriptor = descriptor};                             \
        char link[32];                                                             \
        struct stat seen;                                                          \
        int shrinks = in_force() && fstat(descriptor, &seen) == 0 && seen.st_size > size; \
        int result = next(descriptor, size);                                       \
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);               \
        if (result == 0 && shrinks && readlink(link, call.path, sizeof call.path - 1) > 0) \
            give_back(call.path, seen.st_size - size);                             \
        return result;                                                             \
    }
TRUNCATES(ftruncate)
TRUNCATES(ftruncate64)

#define ALLOCATES(name)                                                            \
    int name(int descriptor, off_t offset, off_t bytes) {                          \
        NEXT(int, name, int, off_t, off_t);                                        \
        int error = in_force() ? on_descriptor(descriptor, WRITE, offset, bytes) : 0; \
        return error ? error : next(descriptor, offset, bytes);                    \
    }
ALLOCATES(posix_fallocate)
ALLOCATES(posix_fallocate64)

#define SYNCS(name)                                             \
    int name(int descriptor) {                                  \
        NEXT(int, name, int);                                   \
        REFUSE(on_descriptor(descriptor, SYNC, 0, 0), -1);      \
        return next(descriptor);                                \
    }
SYNCS(fsync)
SYNCS(fdatasync)

/* ---- names */
/* Returns what will be free when this name is gone. */
static off_t freed_by(const char *path, char resolved[PATH_MAX]) {
    if (!in_force())
        return 0;
    resolve(AT_FDCWD, path, resolved);
    return only_here(resolved);
}

#define DROPS(name)                                    \
    int name(const char *path) {                       \
        NEXT(int, name, const char *);                 \
        REFUSE(on_path(AT_FDCWD, path, DROP), -1);     \
        char resolved[PATH_MAX];                       \
        off_t freed = freed_by(path, resolved);        \
        int result = next(path);                       \
        if (result == 0 && freed)                      \
            give_back(resolved, freed);                \
        return result;                                 \
    }
DROPS(unlink)
DROPS(rmdir)

int unlinkat(int folder, const char *path, int flags) {
    NEXT(int, unlinkat, int, const char *, int);
    REFUSE(on_path(folder, path, DROP), -1);
    return next(folder, path, flags);
}

int rename(const char *old, const char *new) {
    NEXT(int, rename, const char *, const char *);
    REFUSE(on_path(AT_FDCWD, old, DROP), -1);
    REFUSE(on_path(AT_FDCWD, new, DROP), -1);
    char resolved[PATH_MAX];
    off_t freed = freed_by(new, resolved);
    int result = next(old, new);
    if (result == 0 && freed)
        give_back(resolved, freed);
    return result;
}

int link(const char *old, const char *new) {
    NEXT(int, link, const char *, const char *);
    REFUSE(on_path(AT_FDCWD, new, MAKE), -1);
    return next(old, new);
}

int mkdir(const char *path, mode_t mode) {
    NEXT(int, mkdir, const char *, mode_t);
    REFUSE(on_path(AT_FDCWD, path, MAKE), -1);
    return next(path, mode);
}

/* ---- looking */
ssize_t read(int descriptor, void *data, size_t bytes) {
    NEXT(ssize_t, read, int, void *, size_t);
    REFUSE(on_descriptor(descriptor, LOOK, 0, 0), -1);
    return next(descriptor, data, bytes);
}

#define PREADS(name)                                                       \
    ssize_t name(int descriptor, void *data, size_t bytes, off_t offset) { \
        NEXT(ssize_t, name, int, void *, size_t, off_t);                   \
        REFUSE(on_descriptor(descriptor, LOOK, 0, 0), -1);                 \
        return next(descriptor, data, bytes, offset);                      \
    }
PREADS(pread)
PREADS(pread64)

#define STATS(name, type)                          \
    int name(const char *path, struct type *out) { \
        NEXT(int, name, const char *, struct type *); \
        REFUSE(on_path(AT_FDCWD, path, LOOK), -1); \
        return next(path, out);                    \
    }
STATS(stat64, stat64)
STATS(lstat64, stat64)

DIR *opendir(const char *path) {
    NEXT(DIR *, opendir, const char *);
    REFUSE(on_path(AT_FDCWD, path, LOOK), NULL);
    return next(path);
}

/* A disk that is full says so. */
int statvfs64(const char *path, struct statvfs64 *out) {
    NEXT(int, statvfs64, const char *, struct statvfs64 *);
    REFUSE(on_path(AT_FDCWD, path, LOOK), -1);
    int result = next(path, out);
    struct call call = {.kinds = WRITE, .descriptor = -1};
    struct rule constants;
    if (result == 0 && in_force())
        resolve(AT_FDCWD, path, call.path);
    for (int at = 0; call.path[0] && at < RULES; at++)
        if (counts(&table->rules[at], &call, &constants) && constants.action == FULL)
            out->f_bfree = out->f_bavail = constants.left / (int64_t)out->f_frsize;
    return result;
}
