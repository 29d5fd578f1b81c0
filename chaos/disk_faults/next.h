/* For libraries that stand between a process and libc: the function that comes next, and the path that a call means.
 * Who includes this defines _GNU_SOURCE first.
 */
#pragma once
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEXT(type, name, ...)                 \
    static type (*next)(__VA_ARGS__);         \
    if (!next)                                \
    next = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

/* The folder without links and dots, as /proc shows it, and the last name as it is given. */
static void resolve(int folder, const char *path, char out[PATH_MAX]) {
    char whole[PATH_MAX], link[32];
    if (path[0] != '/' && folder != AT_FDCWD) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, out, PATH_MAX - 1);
        out[length > 0 ? length : 0] = 0;
        if (snprintf(whole, sizeof whole, "%s/%s", out, path) >= PATH_MAX)
            whole[0] = 0;
    } else
        snprintf(whole, sizeof whole, "%s", path);
    char *slash = strrchr(whole, '/');
    const char *name = slash ? slash + 1 : whole;
    if (slash)
        *slash = 0;
    char *found = realpath(slash == NULL ? "." : whole[0] ? whole : "/", NULL);
    if (snprintf(out, PATH_MAX, "%s/%s", found ? found : whole, name) >= PATH_MAX)
        out[0] = 0;
    free(found);
}
