// SPDX-License-Identifier: MIT
/*
 * Buffers of another driver that lie in memory of its PCI device: what the chip reads and writes
 * there, and what is left when the exporter takes them back. Root only, with the rig's exporter.
 */
#include "args.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>

#include "../vm/exporter/txda_exporter.h"

#define BYTES (4 * MIB)

/* ---- The exporter --------------------------------------------------------------------------- */

static int must_exporter(void)
{
	int fd = open("/dev/txda_exporter", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		skip("there is no /dev/txda_exporter");
	return fd;
}

static int must_get(int exporter, enum txda_exporter_kind kind)
{
	int buf = ioctl(exporter, TXDA_EXPORTER_GET, kind);

	if (buf < 0)
		fail("no dma-buf of kind %d: %s", kind, strerror_of(errno));
	return buf;
}

static struct txda_exporter_state must_ask(int exporter)
{
	struct txda_exporter_state state;

	must(call(exporter, TXDA_EXPORTER_STATE, &state));
	return state;
}

static void must_use(int exporter, uint32_t attached, uint32_t pinned, uint32_t mapped)
{
	struct txda_exporter_state state = must_ask(exporter);

	check_equal(state.attached, attached);
	check_equal(state.pinned, pinned);
	check_equal(state.mapped, mapped);
}

/* Nobody uses anything of it. Files may be closed a moment later. */
static void must_be_free(int exporter)
{
	int64_t end = now_ns() + PATIENCE;
	struct txda_exporter_state state;

	do {
		state = must_ask(exporter);
		if (!state.buffers)
			break;
		usleep(1000);
	} while (now_ns() < end);
	check_equal(state.buffers, 0);
	must_use(exporter, 0, 0, 0);
}

static int import(int fd, int buf, uint32_t *ret_handle)
{
	struct drm_prime_handle arg = {.fd = buf};
	int err = call(fd, DRM_IOCTL_PRIME_FD_TO_HANDLE, &arg);

	if (!err)
		*ret_handle = arg.handle;
	return err;
}

/* What the CPU sees of it, without the chip's driver. */
static uint32_t *must_see(int buf)
{
	uint32_t *cpu = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, buf, 0);

	check(cpu != MAP_FAILED);
	return cpu;
}

/* @cpu may be memory of a device, for which memcmp() and vector instructions are no good. */
static void must_equal(const uint32_t *a, const volatile uint32_t *cpu, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes / 4; i++)
		check_equal(a[i], cpu[i]);
}

/* ---- Tests ---------------------------------------------------------------------------------- */

static bool has_p2p(int exporter)
{
	return must_ask(exporter).p2p;
}

/* The chip reads what the CPU wrote, and the CPU what the chip wrote. */
static void must_work(struct client *c, uint32_t handle, volatile uint32_t *cpu, uint32_t seed)
{
	struct mem m = must_mem(c->fd, c->vm, MIB);
	volatile uint32_t *mapped;

	for (uint32_t i = 0; i < MIB / 4; i++)
		cpu[i] = i * 7 + seed;
	must(bind_one(c->fd, c->vm, DRM_TXDA_BIND_MAP, handle, 0, VA, BYTES));
	must(dev_copy(c, m.va, VA, MIB));
	for (uint32_t i = 0; i < MIB / 4; i++)
		check_equal(((uint32_t *)m.cpu)[i], i * 7 + seed);
	/* From host memory and by a fill, up to the last byte. */
	for (uint32_t i = 0; i < MIB / 4; i++)
		((uint32_t *)m.cpu)[i] = i ^ seed ^ 0xa5a5;
	must(dev_copy(c, VA + BYTES - MIB, m.va, MIB));
	must_equal(m.cpu, cpu + (BYTES - MIB) / 4, MIB);
	must(dev_fill(c, VA + MIB, MIB, seed));
	for (uint32_t i = 0; i < MIB / 4; i++)
		check_equal(cpu[MIB / 4 + i], seed);
	/* The node maps what the exporter does. */
	mapped = must_map(c->fd, handle, BYTES);
	check_equal(mapped[MIB / 4], seed);
	munmap((void *)mapped, BYTES);
}

/* The file stays open as long as other memory of it is mapped. */
static void leave(struct client *c, uint32_t handle)
{
	must(bind_one(c->fd, c->vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, BYTES));
	must(gem_close(c->fd, handle));
}

TEST(in_place)
{
	static const enum txda_exporter_kind kinds[] = {TXDA_EXPORTER_PINNED, TXDA_EXPORTER_PLAIN};
	int exporter = must_exporter();

	for (uint32_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct client c = must_client(0);
		int buf = must_get(exporter, kinds[i]);
		uint32_t handle, *cpu = must_see(buf);

		if (!has_p2p(exporter)) {
			must_fail(import(c.fd, buf, &handle), EOPNOTSUPP);
			must_use(exporter, 0, 0, 0);
		} else {
			must(import(c.fd, buf, &handle));
			must_use(exporter, 1, kinds[i] == TXDA_EXPORTER_PINNED, 1);
			must_work(&c, handle, cpu, 100 + i);
			/* It stays as long as it is bound, whatever else goes. */
			must(gem_close(c.fd, handle));
			close(buf);
			munmap(cpu, BYTES);
			must_use(exporter, 1, kinds[i] == TXDA_EXPORTER_PINNED, 1);
			must(dev_fill(&c, VA, PAGE, 3));
			must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, BYTES));
			must_be_free(exporter);
		}
		close(c.fd);
		if (has_p2p(exporter))
			continue;
		close(buf);
		munmap(cpu, BYTES);
		must_be_free(exporter);
	}
}

/* Two address spaces in two files; the first one leaves. */
TEST(shared)
{
	int exporter = must_exporter(), buf;
	struct client a = must_client(0), b = must_client(0);
	uint32_t handle, again, *cpu;

	if (!has_p2p(exporter))
		skip("the kernel has no peer-to-peer DMA");
	buf = must_get(exporter, TXDA_EXPORTER_PINNED);
	cpu = must_see(buf);
	must(import(a.fd, buf, &handle));
	must(import(b.fd, buf, &again));
	must(bind_one(a.fd, a.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, BYTES));
	must_work(&b, again, cpu, 5);
	leave(&a, handle);
	must(dev_fill(&b, VA, PAGE, 6));
	check_equal(cpu[PAGE / 4 - 1], 6);
	munmap(cpu, BYTES);
	close(buf);
	leave(&b, again);
	must_be_free(exporter);
}

/* Where the exporter has no way to the chip, it gives system memory. */
TEST(in_system_memory)
{
	int exporter = must_exporter(), buf = must_get(exporter, TXDA_EXPORTER_SYSTEM);
	struct client c = must_client(0);
	uint32_t handle, *cpu = must_see(buf);

	must(import(c.fd, buf, &handle));
	must_work(&c, handle, cpu, 77);
	munmap(cpu, BYTES);
	close(buf);
	leave(&c, handle);
	must_be_free(exporter);
}

TEST(refused)
{
	int exporter = must_exporter(), buf = must_get(exporter, TXDA_EXPORTER_STUBBORN);
	int fd = must_open(0);
	uint32_t handle;

	must_fail(import(fd, buf, &handle), has_p2p(exporter) ? EREMOTEIO : EOPNOTSUPP);
	must_use(exporter, 0, 0, 0);
	close(buf);
	close(fd);
	must_be_free(exporter);
}

struct worker {
	struct client c;
	uint32_t *cpu;
	atomic_bool began;
	unsigned int refused; /* submissions between revocation and the end of translations */
	int status;
};

/* Fills it over and over until the chip faults. */
static void *work(void *arg)
{
	struct worker *w = arg;

	do {
		w->status = dev_fill(&w->c, VA, BYTES, 0x1234);
		w->refused += w->status == -EBUSY;
		atomic_store(&w->began, true);
	} while (!w->status || w->status == -EBUSY);
	printf("  %u submissions refused\n", w->refused);
	return NULL;
}

static void must_lose(void (*take_back)(int exporter))
{
	int exporter = must_exporter(), buf;
	struct worker w = {.c = must_client(0)};
	uint32_t handle;
	pthread_t thread;

	if (!has_p2p(exporter))
		skip("the kernel has no peer-to-peer DMA");
	buf = must_get(exporter, TXDA_EXPORTER_PINNED);
	w.cpu = must_see(buf);
	must(import(w.c.fd, buf, &handle));
	must(bind_one(w.c.fd, w.c.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, BYTES));
	check(!pthread_create(&thread, NULL, work, &w));
	while (!atomic_load(&w.began))
		usleep(1000);

	take_back(exporter);
	/* Once it has returned, nobody has it; the pin goes a moment later. */
	check_equal(must_ask(exporter).mapped, 0);
	for (uint32_t i = 0; i < BYTES / 4; i += 64)
		((volatile uint32_t *)w.cpu)[i] = i;
	pthread_join(thread, NULL);
	check(w.status);
	for (uint32_t i = 0; i < BYTES / 4; i += 64)
		check_equal(((volatile uint32_t *)w.cpu)[i], i);

	/* Not again, not elsewhere, and not for anybody else; what else there is goes on. */
	must_new_queue(&w.c);
	must_fail(bind_one(w.c.fd, w.c.vm, DRM_TXDA_BIND_MAP, handle, 0, VA + BYTES, PAGE), ENODEV);
	check(dev_fill(&w.c, VA, PAGE, 1));
	must_new_queue(&w.c);
	{
		struct mem m = must_mem(w.c.fd, w.c.vm, MIB);
		int fd = must_open(0);
		uint32_t other;

		must(dev_fill(&w.c, m.va, MIB, 9));
		check(is_filled(m.cpu, MIB, 9));
		must_fail(import(fd, buf, &other), ENODEV);
		close(fd);
	}
	leave(&w.c, handle);
	munmap(w.cpu, BYTES);
	close(buf);
	must_be_free(exporter);
}

static void take_back_all(int exporter)
{
	must(call(exporter, TXDA_EXPORTER_REVOKE, NULL));
}

TEST(revoked)
{
	must_lose(take_back_all);
}

/* The exporter's device, as the case has found it. */
static const char *device;

static void write_to(const char *file)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/drivers/txda_exporter/%s", file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, device, strlen(device)) != (ssize_t)strlen(device))
		fail("cannot write %s to %s: %s", device, path, strerror_of(errno));
	close(fd);
}

static void unbind(int exporter)
{
	(void)exporter;
	write_to("unbind");
}

TEST(removed)
{
	device = getenv("EXPORTER_DEVICE");
	if (!device)
		skip("EXPORTER_DEVICE is not set");
	must_lose(unbind);
	write_to("bind");
}

/* Whether the process waits in the kernel function that begins so. */
static bool waits_in(pid_t pid, const char *function)
{
	char path[64], text[4096];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stack", pid);
	f = fopen(path, "r");
	if (!f)
		return false;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	return strstr(text, function);
}

/*
 * The chip is unbound while the exporter waits for a job that will never end, and a submission waits
 * for the exporter: none of them waits for ever.
 */
TEST(unbound_meanwhile)
{
	int exporter = must_exporter(), buf, fence;
	struct client c = must_client(0);
	struct chip chip = must_chip(c.fd);
	uint32_t handle, queue = must_queue_for(c.fd, c.vm, 600000);
	struct stream block;
	struct mem word;
	pid_t pids[3];

	if (!has_p2p(exporter))
		skip("the kernel has no peer-to-peer DMA");
	buf = must_get(exporter, TXDA_EXPORTER_PINNED);
	must(import(c.fd, buf, &handle));
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, BYTES));
	block = must_block(c.fd, c.vm, &word);
	fence = must_sync_file(c.fd, must_submit(c.fd, queue, &block));

	pids[0] = must_fork();
	if (!pids[0]) {
		take_back_all(exporter);
		_exit(0);
	}
	must_become(waits_in(pids[0], "dma_fence_"));
	pids[1] = must_fork();
	if (!pids[1]) {
		/* Whatever comes of it. */
		submit(c.fd, c.queue, 0, 0, NULL, 0);
		_exit(0);
	}
	/* For the reservation object. */
	must_become(waits_in(pids[1], "drm_exec_"));
	check_equal(sync_file_status(fence), 1);
	pids[2] = must_fork();
	if (!pids[2]) {
		unbind_chip(&chip);
		_exit(0);
	}
	for (int i = 2; i >= 0; i--)
		must_become(waitpid(pids[i], NULL, WNOHANG) == pids[i]);
	check(sync_file_status(fence) < 0);
	bind_chip(&chip);
	must_become(node_count() == 1);
	close(buf);
	close(fence);
}

/* A buffer that is taken back while it is imported, bound and freed. */
static void *take_back_always(void *arg)
{
	atomic_bool *over = arg;
	int exporter = must_exporter();

	while (!atomic_load(over))
		take_back_all(exporter);
	close(exporter);
	return NULL;
}

TEST(raced)
{
	int exporter = must_exporter();
	atomic_bool over = false;
	unsigned int lost = 0;
	pthread_t thread;

	if (!has_p2p(exporter))
		skip("the kernel has no peer-to-peer DMA");
	check(!pthread_create(&thread, NULL, take_back_always, &over));
	for (int i = 0; i < 100; i++) {
		int fd = must_open(0), buf = must_get(exporter, i % 2);
		uint32_t vm = must_vm(fd), handle;
		int err = import(fd, buf, &handle);

		if (!err)
			err = bind_one(fd, vm, DRM_TXDA_BIND_MAP, handle, 0, VA, BYTES);
		/* -EIO: the address space was lost to a bind at the wrong moment. */
		check(!err || err == -ENODEV || err == -EIO);
		lost += !!err;
		close(buf);
		close(fd);
	}
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	printf("  %u of 100 taken back before they were bound\n", lost);
	must_be_free(exporter);
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
