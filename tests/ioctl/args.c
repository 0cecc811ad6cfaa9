// SPDX-License-Identifier: MIT
#include "args.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <setjmp.h>

const uint32_t places[2] = {HOST, DEVICE};

void must_refuse(int fd, unsigned long request, const void *good, size_t bytes,
		 const struct bad *bad, size_t n)
{
	char arg[256], before[256];

	check(bytes <= sizeof(arg));
	for (size_t i = 0; i < n; i++) {
		int err;

		memcpy(arg, good, bytes);
		memcpy(arg + bad[i].at, &bad[i].value, bad[i].bytes);
		memcpy(before, arg, bytes);
		err = call(fd, request, arg);
		if (err != -bad[i].error)
			fail("%s: %s, expected %s", bad[i].what, strerror_of(err),
			     strerror_of(bad[i].error));
		if (memcmp(arg, before, bytes))
			fail("%s: the argument changed", bad[i].what);
	}
}

void *at_the_edge(size_t bytes)
{
	size_t pages = (bytes + PAGE - 1) / PAGE + 1;
	char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0);

	check(at != MAP_FAILED);
	must(mprotect(at + (pages - 1) * PAGE, PAGE, PROT_NONE));
	return at + (pages - 1) * PAGE - bytes;
}

void must_fault(int fd, unsigned long request, const void *good, size_t bytes)
{
	for (size_t there = 0; there < bytes; there += 8) {
		char *arg = at_the_edge(there);
		int err;

		memcpy(arg, good, there);
		err = call(fd, request, arg);
		if (err != -EFAULT)
			fail("with %zu of %zu bytes: %s", there, bytes, strerror_of(err));
	}
}

void must_new_queue(struct client *c)
{
	if (c->queue)
		must(queue_destroy(c->fd, c->queue));
	c->queue = must_queue(c->fd, c->vm);
}

struct client must_client(unsigned int i)
{
	struct client c = {.fd = must_open(i)};

	c.vm = must_vm(c.fd);
	c.stream = must_stream(c.fd, c.vm);
	must_new_queue(&c);
	return c;
}

static int dev_run(struct client *c)
{
	int status = submit_wait(c->fd, c->queue, c->stream.mem.va, c->stream.bytes);

	c->stream.bytes = 0;
	return status;
}

int dev_copy(struct client *c, uint64_t dst, uint64_t src, uint64_t bytes)
{
	put_copy(&c->stream, dst, src, bytes);
	return dev_run(c);
}

int dev_fill(struct client *c, uint64_t dst, uint64_t bytes, uint32_t value)
{
	put_fill(&c->stream, dst, bytes, value);
	return dev_run(c);
}

int munmap_mem(struct mem *mem)
{
	int err = munmap(mem->cpu, mem->bytes) ? -errno : 0;

	mem->cpu = NULL;
	return err;
}

static sigjmp_buf out;

static void on_sigbus(int number)
{
	(void)number;
	siglongjmp(out, 1);
}

bool can_read(const volatile uint32_t *word)
{
	struct sigaction action = {.sa_handler = on_sigbus}, before;
	volatile bool good = false;

	sigaction(SIGBUS, &action, &before);
	if (!sigsetjmp(out, 1)) {
		(void)*word;
		good = true;
	}
	sigaction(SIGBUS, &before, NULL);
	return good;
}

struct drm_txda_bo_query_info must_info(int fd, uint32_t handle)
{
	struct drm_txda_bo_query_info info = {.handle = handle};

	must(call(fd, DRM_IOCTL_TXDA_BO_QUERY_INFO, &info));
	return info;
}

int advise(int fd, uint32_t handle, uint32_t advice)
{
	struct drm_txda_bo_advise arg = {.handle = handle, .advice = advice};

	return call(fd, DRM_IOCTL_TXDA_BO_ADVISE, &arg);
}

int to_fd(int fd, uint32_t handle, uint32_t flags, int *ret_buf)
{
	struct drm_prime_handle arg = {.handle = handle, .flags = DRM_CLOEXEC | flags, .fd = -1};
	int err = call(fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &arg);

	if (!err)
		*ret_buf = arg.fd;
	return err;
}

int from_fd(int fd, int buf, uint32_t *ret_handle)
{
	struct drm_prime_handle arg = {.fd = buf};
	int err = call(fd, DRM_IOCTL_PRIME_FD_TO_HANDLE, &arg);

	if (!err)
		*ret_handle = arg.handle;
	return err;
}

int must_export(int fd, uint32_t handle)
{
	int buf = -1;

	must(to_fd(fd, handle, DRM_RDWR, &buf));
	check(buf >= 0);
	return buf;
}

uint32_t must_import(int fd, int buf)
{
	uint32_t handle = 0;

	must(from_fd(fd, buf, &handle));
	check(handle);
	return handle;
}

bool is_filled(const void *at, size_t bytes, uint32_t value)
{
	const uint32_t *word = at;

	for (size_t i = 0; i < bytes / 4; i++) {
		if (word[i] != value) {
			fprintf(stderr, "  word %zu is %#x, expected %#x\n", i, word[i], value);
			return false;
		}
	}
	return true;
}

struct drm_txda_memory_info must_memory(int fd)
{
	struct drm_txda_memory_info info = {0};

	must(query(fd, DRM_TXDA_QUERY_MEMORY, &info, sizeof(info)));
	return info;
}

void must_settle(int fd, uint64_t used)
{
	int64_t deadline = now_ns() + PATIENCE;

	while (must_memory(fd).device_used != used) {
		if (now_ns() > deadline)
			fail("%llu bytes of device memory are in use, expected %llu",
			     (unsigned long long)must_memory(fd).device_used,
			     (unsigned long long)used);
		usleep(1000);
	}
}

uint64_t pinned_kib(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long long kib = 0;
	char line[128];

	check(f);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "VmPin: %llu", &kib);
	fclose(f);
	return kib;
}

/* ---- Chips ---------------------------------------------------------------------------------- */

struct chip must_chip(int fd)
{
	char link[64], target[256], *slash;
	struct chip chip;
	struct stat st;
	ssize_t n;

	if (geteuid())
		skip("only root unbinds drivers");
	must(fstat(fd, &st) ? -errno : 0);
	snprintf(link, sizeof(link), "/sys/dev/char/%u:%u/device", major(st.st_rdev),
		 minor(st.st_rdev));
	n = readlink(link, target, sizeof(target) - 1);
	check(n > 0);
	target[n] = 0;
	slash = strrchr(target, '/');
	check(slash && strlen(slash) < sizeof(chip.pci));
	strcpy(chip.pci, slash + 1);
	return chip;
}

void must_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		fail("cannot write %s to %s: %s", text, path, strerror_of(errno));
	close(fd);
}

void unbind_chip(const struct chip *chip)
{
	must_write("/sys/bus/pci/drivers/txda/unbind", chip->pci);
}

void bind_chip(const struct chip *chip)
{
	must_write("/sys/bus/pci/drivers/txda/bind", chip->pci);
}

void reset_chip(const struct chip *chip)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/reset", chip->pci);
	must_write(path, "1");
}

char state_of(pid_t pid, pid_t thread)
{
	char path[64], text[256], *at;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, thread);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n < 0 ? 0 : n] = 0;
	at = strrchr(text, ')');
	return at && at[1] ? at[2] : 0;
}
