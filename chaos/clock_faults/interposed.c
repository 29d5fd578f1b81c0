/* Stands between a process and its clocks (LD_PRELOAD): the wall clock jumps, and both the wall clock and CLOCK_BOOTTIME run
 * faster or slower, as a table in shared memory says.
 *
 * What always holds: CLOCK_BOOTTIME never goes backwards, for a new rate begins a moment after it was written, where the old one
 * ends; CLOCK_MONOTONIC is left alone, because the kernel waits by it; a wait until a moment of the wall clock ends when that
 * clock shows the moment; a table that is missing or broken is reported on standard error, and no clock is touched. What cannot
 * be seen from here: stamps that the kernel makes (of files), raw system calls, and waits of other calls than those below.
 * The table is that of control.py, which writes it; both lay it out in the same way.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SECOND = 1000000000, MILLION = 1000000, WALL_BEGINS = 1000000000 }; /* s: no machine runs for so long */

struct table { /* all in nanoseconds; rates are millionths */
    char magic[8];
    _Atomic uint64_t version; /* odd: it is being written */
    _Atomic int64_t since, shows, rate_before, rate, jump; /* CLOCK_BOOTTIME shows `shows` at its real `since` */
};

static const char MAGIC[8] = "clkflt1";
static struct table *table;

#define NEXT(type, name, ...)                 \
    static type (*next)(__VA_ARGS__);         \
    if (!next)                                \
    next = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("CLOCK_FAULTS_TABLE");
    struct stat seen;
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct table *found = MAP_FAILED;
    if (file >= 0 && fstat(file, &seen) == 0 && seen.st_size == sizeof *found)
        found = mmap(NULL, sizeof *found, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (found == MAP_FAILED || memcmp(found->magic, MAGIC, sizeof MAGIC) != 0) {
        dprintf(2, "clock faults: no table at %s (CLOCK_FAULTS_TABLE): clocks are as they are\n", path ? path : "(unset)");
        return;
    }
    table = found;
}

static int real(clockid_t clock, struct timespec *at) {
    NEXT(int, clock_gettime, clockid_t, struct timespec *);
    return next(clock, at);
}

static int64_t ns(const struct timespec *at) { return (int64_t)at->tv_sec * SECOND + at->tv_nsec; }

static void put(int64_t value, struct timespec *at) {
    at->tv_sec = value / SECOND;
    at->tv_nsec = value % SECOND;
}

/* How far CLOCK_BOOTTIME is ahead of the real one, and the wall clock besides. */
static void ahead(int64_t boot, int64_t *by, int64_t *jump) {
    uint64_t version;
    int64_t since, shows, rate;
    do {
        version = atomic_load(&table->version);
        since = atomic_load(&table->since);
        shows = atomic_load(&table->shows);
        rate = boot < since ? atomic_load(&table->rate_before) : atomic_load(&table->rate);
        *jump = atomic_load(&table->jump);
    } while (version % 2 || version != atomic_load(&table->version));
    *by = shows - since + (int64_t)((__int128)(boot - since) * (rate - MILLION) / MILLION);
}

static int64_t wall_ahead(void) {
    struct timespec boot;
    int64_t by, jump;
    real(CLOCK_BOOTTIME, &boot);
    ahead(ns(&boot), &by, &jump);
    return by + jump;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int done = real(clock, at);
    if (!table || done != 0)
        return done;
    if (clock == CLOCK_BOOTTIME) {
        int64_t by, jump;
        ahead(ns(at), &by, &jump);
        put(ns(at) + by, at);
    } else if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        put(ns(at) + wall_ahead(), at);
    }
    return done;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}

/* ---- waits until a moment of the wall clock */
static const struct timespec *really(clockid_t clock, const struct timespec *until, struct timespec *room) {
    if (!table || !until || clock != CLOCK_REALTIME || until->tv_sec < WALL_BEGINS)
        return until;
    put(ns(until) - wall_ahead(), room);
    return room;
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec room;
    if (!next) { /* it has an older version, which dlsym may find, and which lays out conditions otherwise */
        next = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))dlvsym(
            RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
        if (!next)
            next = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))dlsym(
                RTLD_NEXT, "pthread_cond_timedwait");
    }
    return next(cond, mutex, really(CLOCK_REALTIME, until, &room)); /* by which clock it waits, its moment tells */
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until) {
    NEXT(int, pthread_cond_clockwait, pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    struct timespec room;
    return next(cond, mutex, clock, really(clock, until, &room));
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict until) {
    NEXT(int, sem_timedwait, sem_t *, const struct timespec *);
    struct timespec room;
    return next(sem, really(CLOCK_REALTIME, until, &room));
}
