/* Lets calls that change or flush a file below one directory fail, as a disk does that is broken or full.
 *
 * Preloaded (LD_PRELOAD) it stands between the program and the C library. It counts the calls that concern files below
 * FAULTS_ROOT; the program itself says which of them fail, and how, through faults_arm. Everything else passes.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* DONE does what it was asked for and says that it failed; the calls behind it that are to fail are refused. DEADLY
 * kills the process behind the first write that the system flushes at once: the last page of a commit of LMDB. */
enum way { NEVER, REFUSED, DONE, FULL, SHORT, DEADLY }; /* The numbers are those of Way in cases.py. */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_bytes;
static long seen, first, last;
static enum way armed = NEVER;
static long met, removals;

__attribute__((constructor)) static void begin(void) {
    const char *below = getenv("FAULTS_ROOT");
    if (!below) return;
    if (!realpath(below, root)) {
        dprintf(2, "failing: %s: %s\n", below, strerror(errno));
        _exit(70);
    }
    root_bytes = strlen(root);
}

/* From the calls that come now, let those from `from` to `until` fail in this way; the first is 1. */
void faults_arm(long from, long until, int way) {
    pthread_mutex_lock(&mutex);
    seen = 0, first = from, last = until, armed = (enum way)way;
    met = removals = 0;
    pthread_mutex_unlock(&mutex);
}

/* How many calls came since faults_arm. */
long faults_seen(void) { return seen; }

/* How many of them failed. */
long faults_met(void) { return met; }

/* How many of those would have removed a name. */
long faults_removals(void) { return removals; }

static int is_below(const char *path) {
    return root_bytes && !strncmp(path, root, root_bytes) && (path[root_bytes] == '/' || !path[root_bytes]);
}

static int path_of(int file, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t bytes = readlink(link, path, PATH_MAX - 1);
    if (bytes < 0) return 0;
    path[bytes] = 0;
    return 1;
}

static int resolve(int directory, const char *path, char *absolute) {
    char base[PATH_MAX] = "";
    if (!root_bytes || !path) return 0;
    if (path[0] != '/') {
        int known = directory == AT_FDCWD ? getcwd(base, sizeof base) != NULL : path_of(directory, base);
        if (!known || strlen(base) + 1 >= sizeof base) return 0;
        strcat(base, "/");
    }
    if (strlen(base) + strlen(path) >= PATH_MAX) return 0;
    strcpy(absolute, base);
    strcat(absolute, path);
    return is_below(absolute);
}

/* What becomes of the next call that concerns the path. */
static enum way next_way(int is_watched) {
    enum way way = NEVER;
    if (!is_watched || armed == NEVER || armed == DEADLY) return NEVER;
    pthread_mutex_lock(&mutex);
    seen++;
    if (seen >= first && seen <= last) way = armed == DONE && seen > first ? REFUSED : armed, met++;
    pthread_mutex_unlock(&mutex);
    return way;
}

static enum way way_of_file(int file) {
    char path[PATH_MAX];
    int error = errno;
    enum way way = next_way(armed != NEVER && path_of(file, path) && is_below(path));
    errno = error;
    return way;
}

static enum way way_of_path(int directory, const char *path) {
    char absolute[PATH_MAX];
    int error = errno;
    enum way way = next_way(armed != NEVER && resolve(directory, path, absolute));
    errno = error;
    return way;
}

static int error_of(enum way way) { return way == FULL ? ENOSPC : EIO; }

/* Declares real_NAME: the function that stands behind ours. */
#define NEXT(type, name, ...)                                                                                          \
    static type (*real_##name)(__VA_ARGS__);                                                                           \
    if (!real_##name) real_##name = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

/* Fails as a call does that returns -1 and sets errno. */
#define FAILING(way, call)                                                                                             \
    do {                                                                                                               \
        if ((way) == NEVER) return call;                                                                               \
        if ((way) == DONE && (call) < 0) return -1;                                                                    \
        errno = error_of(way);                                                                                         \
        return -1;                                                                                                     \
    } while (0)

/* Writes: one that is short writes its first half. */

ssize_t write(int file, const void *bytes, size_t count) {
    NEXT(ssize_t, write, int, const void *, size_t);
    enum way way = way_of_file(file);
    if (way == SHORT && count > 1) return real_write(file, bytes, count / 2);
    FAILING(way, real_write(file, bytes, count));
}

static ssize_t survived(int file, ssize_t written) {
    if (armed == DEADLY && (fcntl(file, F_GETFL) & O_DSYNC)) kill(getpid(), SIGKILL);
    return written;
}

#define PWRITE(name)                                                                                                   \
    ssize_t name(int file, const void *bytes, size_t count, off_t offset) {                                            \
        NEXT(ssize_t, name, int, const void *, size_t, off_t);                                                         \
        enum way way = way_of_file(file);                                                                              \
        if (way == SHORT && count > 1) return real_##name(file, bytes, count / 2, offset);                             \
        FAILING(way, survived(file, real_##name(file, bytes, count, offset)));                                         \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

static struct iovec half_of(const struct iovec *parts) {
    struct iovec half = {parts[0].iov_base, parts[0].iov_len > 1 ? parts[0].iov_len / 2 : parts[0].iov_len};
    return half;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    NEXT(ssize_t, writev, int, const struct iovec *, int);
    enum way way = way_of_file(file);
    struct iovec half = half_of(parts);
    if (way == SHORT) return real_writev(file, &half, 1);
    FAILING(way, real_writev(file, parts, count));
}

#define PWRITEV(name)                                                                                                  \
    ssize_t name(int file, const struct iovec *parts, int count, off_t offset) {                                       \
        NEXT(ssize_t, name, int, const struct iovec *, int, off_t);                                                    \
        enum way way = way_of_file(file);                                                                              \
        struct iovec half = half_of(parts);                                                                            \
        if (way == SHORT) return real_##name(file, &half, 1, offset);                                                  \
        FAILING(way, real_##name(file, parts, count, offset));                                                         \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

/* Flushes, lengths and names: what cannot be short fails as if it was not done. */

#define SYNC(name)                                                                                                     \
    int name(int file) {                                                                                               \
        NEXT(int, name, int);                                                                                          \
        enum way way = way_of_file(file);                                                                              \
        FAILING(way, real_##name(file));                                                                               \
    }
SYNC(fsync)
SYNC(fdatasync)

#define FTRUNCATE(name)                                                                                                \
    int name(int file, off_t length) {                                                                                 \
        NEXT(int, name, int, off_t);                                                                                   \
        enum way way = way_of_file(file);                                                                              \
        FAILING(way, real_##name(file, length));                                                                       \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

#define TRUNCATE(name)                                                                                                 \
    int name(const char *path, off_t length) {                                                                         \
        NEXT(int, name, const char *, off_t);                                                                          \
        enum way way = way_of_path(AT_FDCWD, path);                                                                    \
        FAILING(way, real_##name(path, length));                                                                       \
    }
TRUNCATE(truncate)
TRUNCATE(truncate64)

/* Returns its error. */
#define POSIX_FALLOCATE(name)                                                                                          \
    int name(int file, off_t offset, off_t length) {                                                                   \
        NEXT(int, name, int, off_t, off_t);                                                                            \
        enum way way = way_of_file(file);                                                                              \
        int result = way == NEVER || way == DONE ? real_##name(file, offset, length) : 0;                              \
        return way == NEVER || result ? result : error_of(way);                                                        \
    }
POSIX_FALLOCATE(posix_fallocate)
POSIX_FALLOCATE(posix_fallocate64)

#define MODE(flags)                                                                                                    \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                                             \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }

/* Of openings those count that create: they need room in the directory. */
static int open_at(int directory, const char *path, int flags, mode_t mode) {
    NEXT(int, openat, int, const char *, int, ...);
    struct stat status;
    int is_new = (flags & O_CREAT) && armed != NEVER && fstatat(directory, path, &status, 0) < 0;
    enum way way = is_new ? way_of_path(directory, path) : NEVER;
    if (way == DONE) way = REFUSED; /* Nobody would close what was opened. */
    FAILING(way, real_openat(directory, path, flags, mode));
}

int open(const char *path, int flags, ...) {
    MODE(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags)
    return open_at(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int openat(int directory, const char *path, int flags, ...) {
    MODE(flags)
    return open_at(directory, path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...) {
    MODE(flags)
    return open_at(directory, path, flags | O_LARGEFILE, mode);
}

int mkdir(const char *path, mode_t mode) {
    NEXT(int, mkdir, const char *, mode_t);
    struct stat status;
    enum way way = armed != NEVER && stat(path, &status) < 0 ? way_of_path(AT_FDCWD, path) : NEVER;
    if (way == DONE) way = REFUSED; /* Nobody would know the name of what was made. */
    FAILING(way, real_mkdir(path, mode));
}

int rename(const char *path, const char *other) {
    NEXT(int, rename, const char *, const char *);
    enum way way = way_of_path(AT_FDCWD, other);
    FAILING(way, real_rename(path, other));
}

/* What removes a name. */
static enum way way_of_removal(int directory, const char *path) {
    enum way way = way_of_path(directory, path);
    if (way != NEVER) removals++;
    return way;
}

int unlink(const char *path) {
    NEXT(int, unlink, const char *);
    enum way way = way_of_removal(AT_FDCWD, path);
    FAILING(way, real_unlink(path));
}

int unlinkat(int directory, const char *path, int flags) {
    NEXT(int, unlinkat, int, const char *, int);
    enum way way = way_of_removal(directory, path);
    FAILING(way, real_unlinkat(directory, path, flags));
}

int rmdir(const char *path) {
    NEXT(int, rmdir, const char *);
    enum way way = way_of_removal(AT_FDCWD, path);
    FAILING(way, real_rmdir(path));
}
