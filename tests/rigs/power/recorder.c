/* Records what a process does to the files below one directory, in the order in which it is done.
 *
 * Preloaded (LD_PRELOAD) it stands between the program and the C library: a call is made under a lock and, if it
 * changed or flushed something below POWER_ROOT, described by one record at the end of POWER_TRACE. The lock makes the
 * order of the records the order of the calls, across threads and processes. trace.py reads the records.
 *
 * Files are told apart by inode, so that a rename needs no care. Writes through a memory map pass unseen; that a file
 * was mapped for writing is recorded instead. If the trace cannot be written the process ends: a trace with a hole
 * would prove nothing.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { WRITE = 1, TRUNCATE, ALLOCATE, FLUSH, CREATE, MAKE_DIRECTORY, RENAME, LINK, UNLINK, MAP, FLUSH_RANGE };

struct header {
    uint32_t kind;
    uint32_t durable; /* The write is flushed when it returns: the file was opened with O_DSYNC or O_SYNC. */
    uint64_t inode;
    uint64_t offset; /* Of TRUNCATE the new length, of ALLOCATE the end of the range. */
    uint32_t path_bytes;
    uint32_t other_bytes; /* The second path: where RENAME and LINK lead. */
    uint64_t payload_bytes;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_bytes;
static int trace = -1;

static void fail(const char *what) {
    dprintf(2, "recorder: %s: %s\n", what, strerror(errno));
    _exit(70);
}

static void lock_trace(short how) {
    struct flock lock = {.l_type = how, .l_whence = SEEK_SET};
    while (fcntl(trace, F_SETLKW, &lock) < 0)
        if (errno != EINTR) fail("locking the trace");
}

static void enter(void) {
    pthread_mutex_lock(&mutex);
    if (trace >= 0) lock_trace(F_WRLCK);
}

static void leave(void) {
    int error = errno;
    if (trace >= 0) lock_trace(F_UNLCK);
    pthread_mutex_unlock(&mutex);
    errno = error;
}

static void lock_for_fork(void) { pthread_mutex_lock(&mutex); }
static void unlock_after_fork(void) { pthread_mutex_unlock(&mutex); }

__attribute__((constructor)) static void begin(void) {
    const char *below = getenv("POWER_ROOT"), *into = getenv("POWER_TRACE");
    if (!below || !into) return;
    if (!realpath(below, root)) fail(below);
    root_bytes = strlen(root);
    trace = (int)syscall(SYS_openat, AT_FDCWD, into, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (trace < 0) fail(into);
    pthread_atfork(lock_for_fork, unlock_after_fork, unlock_after_fork);
}

static void put(const void *from, size_t bytes) {
    const char *next = from;
    while (bytes) {
        ssize_t written = (ssize_t)syscall(SYS_write, trace, next, bytes);
        if (written < 0 && errno != EINTR) fail("writing the trace");
        if (written > 0) next += written, bytes -= (size_t)written;
    }
}

static void record(struct header header, const char *path, const char *other, const struct iovec *parts, int count) {
    header.path_bytes = path ? (uint32_t)strlen(path) : 0;
    header.other_bytes = other ? (uint32_t)strlen(other) : 0;
    put(&header, sizeof header);
    if (path) put(path, header.path_bytes);
    if (other) put(other, header.other_bytes);
    size_t rest = header.payload_bytes;
    for (int part = 0; part < count && rest; part++) {
        size_t bytes = parts[part].iov_len < rest ? parts[part].iov_len : rest;
        put(parts[part].iov_base, bytes);
        rest -= bytes;
    }
}

/* Which files count. */

static int is_below(const char *path) {
    return trace >= 0 && !strncmp(path, root, root_bytes) && (path[root_bytes] == '/' || !path[root_bytes]);
}

static int path_of(int file, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t bytes = readlink(link, path, PATH_MAX - 1);
    if (bytes < 0) return 0;
    path[bytes] = 0;
    return 1;
}

static int is_watched(int file) {
    char path[PATH_MAX];
    int error = errno;
    int watched = trace >= 0 && path_of(file, path) && is_below(path);
    errno = error;
    return watched;
}

/* The absolute path; 0 if it is too long or not below the root. */
static int resolve(int directory, const char *path, char *absolute) {
    char base[PATH_MAX] = "";
    int error = errno;
    if (trace < 0 || !path) return 0;
    if (path[0] != '/') {
        int known = directory == AT_FDCWD ? getcwd(base, sizeof base) != NULL : path_of(directory, base);
        errno = error;
        if (!known || strlen(base) + 1 >= sizeof base) return 0;
        strcat(base, "/");
    }
    if (strlen(base) + strlen(path) >= PATH_MAX) return 0;
    strcpy(absolute, base);
    strcat(absolute, path);
    return is_below(absolute);
}

static uint64_t inode_of(int file) {
    struct stat status;
    if (fstat(file, &status) < 0) fail("asking for an inode");
    return status.st_ino;
}

static uint64_t inode_at(const char *path) {
    struct stat status;
    if (lstat(path, &status) < 0) fail(path);
    return status.st_ino;
}

/* Declares real_NAME: the function that the recorder stands before. */
#define NEXT(type, name, ...)                                                                                          \
    static type (*real_##name)(__VA_ARGS__);                                                                           \
    if (!real_##name) real_##name = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

/* Writes. */

static void wrote(int file, uint64_t offset, const struct iovec *parts, int count, ssize_t bytes) {
    int error = errno;
    if (bytes <= 0) return;
    int flags = fcntl(file, F_GETFL);
    struct header header = {.kind = WRITE,
                            .durable = (flags & O_DSYNC) != 0, /* O_SYNC holds the bit of O_DSYNC. */
                            .inode = inode_of(file),
                            .offset = offset,
                            .payload_bytes = (uint64_t)bytes};
    record(header, NULL, NULL, parts, count);
    errno = error;
}

/* Where a write without an offset of its own begins. */
static uint64_t position(int file) {
    struct stat status;
    if ((fcntl(file, F_GETFL) & O_APPEND) && !fstat(file, &status)) return (uint64_t)status.st_size;
    return (uint64_t)lseek(file, 0, SEEK_CUR);
}

ssize_t write(int file, const void *bytes, size_t count) {
    NEXT(ssize_t, write, int, const void *, size_t);
    if (!is_watched(file)) return real_write(file, bytes, count);
    struct iovec part = {(void *)bytes, count};
    enter();
    uint64_t offset = position(file);
    ssize_t written = real_write(file, bytes, count);
    wrote(file, offset, &part, 1, written);
    leave();
    return written;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    NEXT(ssize_t, writev, int, const struct iovec *, int);
    if (!is_watched(file)) return real_writev(file, parts, count);
    enter();
    uint64_t offset = position(file);
    ssize_t written = real_writev(file, parts, count);
    wrote(file, offset, parts, count, written);
    leave();
    return written;
}

#define PWRITE(name)                                                                                                   \
    ssize_t name(int file, const void *bytes, size_t count, off_t offset) {                                            \
        NEXT(ssize_t, name, int, const void *, size_t, off_t);                                                         \
        if (!is_watched(file)) return real_##name(file, bytes, count, offset);                                         \
        struct iovec part = {(void *)bytes, count};                                                                    \
        enter();                                                                                                       \
        ssize_t written = real_##name(file, bytes, count, offset);                                                     \
        wrote(file, (uint64_t)offset, &part, 1, written);                                                              \
        leave();                                                                                                       \
        return written;                                                                                                \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(name)                                                                                                  \
    ssize_t name(int file, const struct iovec *parts, int count, off_t offset) {                                       \
        NEXT(ssize_t, name, int, const struct iovec *, int, off_t);                                                    \
        if (!is_watched(file)) return real_##name(file, parts, count, offset);                                         \
        enter();                                                                                                       \
        ssize_t written = real_##name(file, parts, count, offset);                                                     \
        wrote(file, (uint64_t)offset, parts, count, written);                                                          \
        leave();                                                                                                       \
        return written;                                                                                                \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

/* Python's os.pwritev is this one. Its flags may make a write durable or append it, which is not recorded. */
#define PWRITEV_FLAGS(name)                                                                                            \
    ssize_t name(int file, const struct iovec *parts, int count, off_t offset, int flags) {                            \
        NEXT(ssize_t, name, int, const struct iovec *, int, off_t, int);                                               \
        if (!is_watched(file)) return real_##name(file, parts, count, offset, flags);                                  \
        if (flags || offset < 0) fail("pwritev2 with flags or at the file's position is not recorded");                \
        enter();                                                                                                       \
        ssize_t written = real_##name(file, parts, count, offset, flags);                                              \
        wrote(file, (uint64_t)offset, parts, count, written);                                                          \
        leave();                                                                                                       \
        return written;                                                                                                \
    }
PWRITEV_FLAGS(pwritev2)
PWRITEV_FLAGS(pwritev64v2)

/* Lengths. */

static int resized(int result, enum kind kind, uint64_t inode, uint64_t length) {
    struct header header = {.kind = kind, .inode = inode, .offset = length};
    int error = errno;
    if (!result) record(header, NULL, NULL, NULL, 0);
    errno = error;
    return result;
}

#define FTRUNCATE(name)                                                                                                \
    int name(int file, off_t length) {                                                                                 \
        NEXT(int, name, int, off_t);                                                                                   \
        if (!is_watched(file)) return real_##name(file, length);                                                       \
        enter();                                                                                                       \
        int result = resized(real_##name(file, length), TRUNCATE, inode_of(file), (uint64_t)length);                   \
        leave();                                                                                                       \
        return result;                                                                                                 \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

#define TRUNCATE_PATH(name)                                                                                            \
    int name(const char *path, off_t length) {                                                                         \
        NEXT(int, name, const char *, off_t);                                                                          \
        char absolute[PATH_MAX];                                                                                       \
        struct stat status;                                                                                            \
        if (!resolve(AT_FDCWD, path, absolute) || stat(absolute, &status)) return real_##name(path, length);           \
        enter();                                                                                                       \
        int result = resized(real_##name(path, length), TRUNCATE, status.st_ino, (uint64_t)length);                    \
        leave();                                                                                                       \
        return result;                                                                                                 \
    }
TRUNCATE_PATH(truncate)
TRUNCATE_PATH(truncate64)

#define POSIX_FALLOCATE(name)                                                                                          \
    int name(int file, off_t offset, off_t length) {                                                                   \
        NEXT(int, name, int, off_t, off_t);                                                                            \
        if (!is_watched(file)) return real_##name(file, offset, length);                                               \
        enter();                                                                                                       \
        int result = resized(real_##name(file, offset, length), ALLOCATE, inode_of(file),                              \
                             (uint64_t)(offset + length));                                                             \
        leave();                                                                                                       \
        return result;                                                                                                 \
    }
POSIX_FALLOCATE(posix_fallocate)
POSIX_FALLOCATE(posix_fallocate64)

/* Modes that keep the length, or punch or move ranges, are nothing that a store of ours may use unrecorded. */
#define FALLOCATE(name)                                                                                                \
    int name(int file, int mode, off_t offset, off_t length) {                                                         \
        NEXT(int, name, int, int, off_t, off_t);                                                                       \
        if (!is_watched(file)) return real_##name(file, mode, offset, length);                                         \
        if (mode) fail("fallocate with a mode is not recorded");                                                       \
        enter();                                                                                                       \
        int result = resized(real_##name(file, mode, offset, length), ALLOCATE, inode_of(file),                        \
                             (uint64_t)(offset + length));                                                             \
        leave();                                                                                                       \
        return result;                                                                                                 \
    }
FALLOCATE(fallocate)
FALLOCATE(fallocate64)

/* Flushes: recorded when they have returned, so that what they cover stands before them. */

static int flushed(int result, int file, enum kind kind) {
    struct header header = {.kind = kind, .inode = inode_of(file)};
    int error = errno;
    if (!result) record(header, NULL, NULL, NULL, 0);
    errno = error;
    return result;
}

#define SYNC(name)                                                                                                     \
    int name(int file) {                                                                                               \
        NEXT(int, name, int);                                                                                          \
        if (!is_watched(file)) return real_##name(file);                                                               \
        enter();                                                                                                       \
        int result = flushed(real_##name(file), file, FLUSH);                                                          \
        leave();                                                                                                       \
        return result;                                                                                                 \
    }
SYNC(fsync)
SYNC(fdatasync)

int sync_file_range(int file, off_t offset, off_t count, unsigned int flags) {
    NEXT(int, sync_file_range, int, off_t, off_t, unsigned int);
    if (!is_watched(file)) return real_sync_file_range(file, offset, count, flags);
    enter();
    int result = flushed(real_sync_file_range(file, offset, count, flags), file, FLUSH_RANGE);
    leave();
    return result;
}

int msync(void *address, size_t bytes, int flags) {
    NEXT(int, msync, void *, size_t, int);
    struct header header = {.kind = FLUSH_RANGE};
    enter();
    int result = real_msync(address, bytes, flags);
    int error = errno;
    if (!result && trace >= 0) record(header, NULL, NULL, NULL, 0);
    errno = error;
    leave();
    return result;
}

static void mapped(const void *address, int protection, int flags, int file) {
    int error = errno;
    if (address == MAP_FAILED || !(protection & PROT_WRITE) || (flags & MAP_TYPE) == MAP_PRIVATE) return;
    if (file >= 0 && is_watched(file)) {
        struct header header = {.kind = MAP, .inode = inode_of(file)};
        enter();
        record(header, NULL, NULL, NULL, 0);
        leave();
    }
    errno = error;
}

#define MMAP(name)                                                                                                     \
    void *name(void *wanted, size_t bytes, int protection, int flags, int file, off_t offset) {                        \
        NEXT(void *, name, void *, size_t, int, int, int, off_t);                                                      \
        void *address = real_##name(wanted, bytes, protection, flags, file, offset);                                   \
        mapped(address, protection, flags, file);                                                                      \
        return address;                                                                                                \
    }
MMAP(mmap)
MMAP(mmap64)

/* Directories. */

typedef int opener(int, const char *, int, mode_t);

static int open_at(int directory, const char *path, int flags, mode_t mode) {
    NEXT(int, openat, int, const char *, int, ...);
    char absolute[PATH_MAX];
    struct stat before;
    if (!(flags & (O_CREAT | O_TRUNC)) || !resolve(directory, path, absolute))
        return real_openat(directory, path, flags, mode);
    enter();
    int was_there = !lstat(absolute, &before);
    int file = real_openat(directory, path, flags, mode);
    if (file >= 0 && !was_there) {
        struct header header = {.kind = CREATE, .inode = inode_of(file)};
        record(header, absolute, NULL, NULL, 0);
    }
    if (file >= 0 && was_there && (flags & O_TRUNC)) resized(0, TRUNCATE, inode_of(file), 0);
    leave();
    return file;
}

#define MODE(flags)                                                                                                    \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                                             \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
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

int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int mkdirat(int directory, const char *path, mode_t mode) {
    NEXT(int, mkdirat, int, const char *, mode_t);
    char absolute[PATH_MAX];
    if (!resolve(directory, path, absolute)) return real_mkdirat(directory, path, mode);
    enter();
    int result = real_mkdirat(directory, path, mode);
    int error = errno;
    if (!result) {
        struct header header = {.kind = MAKE_DIRECTORY, .inode = inode_at(absolute)};
        record(header, absolute, NULL, NULL, 0);
    }
    errno = error;
    leave();
    return result;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

static int named(int result, enum kind kind, const char *path, const char *other) {
    struct header header = {.kind = kind};
    int error = errno;
    if (!result) record(header, path, other, NULL, 0);
    errno = error;
    return result;
}

int renameat2(int from, const char *path, int to, const char *other, unsigned int flags) {
    NEXT(int, renameat2, int, const char *, int, const char *, unsigned int);
    char source[PATH_MAX], target[PATH_MAX];
    int leaves = resolve(from, path, source), arrives = resolve(to, other, target);
    if (!leaves && !arrives) return real_renameat2(from, path, to, other, flags);
    if (!leaves || !arrives) fail("a rename across the edge of the recorded directory is not recorded");
    if (flags & ~1u) fail("a rename with flags is not recorded"); /* 1 is RENAME_NOREPLACE. */
    enter();
    int result = named(real_renameat2(from, path, to, other, flags), RENAME, source, target);
    leave();
    return result;
}

int renameat(int from, const char *path, int to, const char *other) { return renameat2(from, path, to, other, 0); }

int rename(const char *path, const char *other) { return renameat2(AT_FDCWD, path, AT_FDCWD, other, 0); }

int linkat(int from, const char *path, int to, const char *other, int flags) {
    NEXT(int, linkat, int, const char *, int, const char *, int);
    char source[PATH_MAX], target[PATH_MAX];
    int leaves = resolve(from, path, source), arrives = resolve(to, other, target);
    if (!leaves && !arrives) return real_linkat(from, path, to, other, flags);
    if (!leaves || !arrives) fail("a link across the edge of the recorded directory is not recorded");
    enter();
    int result = named(real_linkat(from, path, to, other, flags), LINK, source, target);
    leave();
    return result;
}

int link(const char *path, const char *other) { return linkat(AT_FDCWD, path, AT_FDCWD, other, 0); }

int unlinkat(int directory, const char *path, int flags) {
    NEXT(int, unlinkat, int, const char *, int);
    char absolute[PATH_MAX];
    if (!resolve(directory, path, absolute)) return real_unlinkat(directory, path, flags);
    enter();
    int result = named(real_unlinkat(directory, path, flags), UNLINK, absolute, NULL);
    leave();
    return result;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
