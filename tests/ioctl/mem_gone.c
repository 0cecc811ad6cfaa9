// SPDX-License-Identifier: MIT
/*
 * What is left of memory when its chip goes: the driver is unbound under open files, mappings and
 * peers, and bound again. Root only.
 */
#include "args.h"
#include "stall.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* ---- Memory that is not there --------------------------------------------------------------- */

static bool is_gone(const volatile uint32_t *word)
{
	return !can_read(word);
}

TEST(mappings)
{
	int fd = must_open(0), again;
	struct chip chip = must_chip(fd);
	uint32_t device, host, *in_device, *untouched, *in_host, *in_buf;
	uint64_t before;
	void *at;

	must(bo_create(fd, 4 * MIB, DEVICE, 0, 0, &device));
	must(bo_create(fd, 4 * MIB, HOST, 0, 0, &host));
	in_device = must_map(fd, device, 4 * MIB);
	untouched = must_map(fd, device, 4 * MIB);
	in_host = must_map(fd, host, 4 * MIB);
	in_buf =
		mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, must_export(fd, device), 0);
	check(in_buf != MAP_FAILED);
	in_device[0] = 77;
	check_equal(in_buf[0], 77);
	in_host[0] = 88;

	unbind_chip(&chip);
	check(is_gone(in_device));
	check(is_gone(in_device + MIB / 2));
	check(is_gone(untouched));
	check(is_gone(in_buf));
	/* Host memory is there for as long as somebody has it. */
	check_equal(in_host[0], 88);
	check_equal(in_host[MIB - 1], 0);
	must_fail(bo_create(fd, PAGE, HOST, 0, 0, &host), ENODEV);
	must_fail(bo_create(fd, PAGE, DEVICE, 0, 0, &host), ENODEV);
	must_fail(gem_close(fd, device), ENODEV);
	at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 1ll << 32);
	check(at == MAP_FAILED && errno == ENODEV);

	bind_chip(&chip);
	again = must_open(0);
	before = must_memory(again).device_used;
	/* The chip is back, the old memory is not. */
	check(is_gone(in_device));
	check(is_gone(in_buf));
	must_fail(bo_create(fd, PAGE, HOST, 0, 0, &host), ENODEV);
	must(bo_create(again, 4 * MIB, DEVICE, 0, 0, &device));
	untouched = must_map(again, device, 4 * MIB);
	check(is_filled(untouched, 4 * MIB, 0));
	close(fd);
	check(is_gone(in_device));
	check_equal(in_host[0], 88);
	check_equal(must_memory(again).device_used, before + 4 * MIB);
}

/* A chip whose buffers are mapped elsewhere goes: its peers lose them, and get nobody else's. */
TEST(peers)
{
	struct client b = must_client(1);
	int fd = must_open(0), buf, again;
	struct chip chip = must_chip(fd);
	struct mem back = must_mem(b.fd, b.vm, 4 * MIB);
	uint32_t handle, imported, *through, filled, *cpu = NULL;
	uint64_t left;

	must(bo_create(fd, 4 * MIB, DEVICE, 0, 0, &handle));
	buf = must_export(fd, handle);
	imported = must_import(b.fd, buf);
	through = must_map(b.fd, imported, 4 * MIB);
	through[0] = 0x0b0b0b0b;
	must(bind_one(b.fd, b.vm, DRM_TXDA_BIND_MAP, imported, 0, VA, 4 * MIB));
	must(dev_copy(&b, back.va, VA, 4 * MIB));
	check_equal(((uint32_t *)back.cpu)[0], 0x0b0b0b0b);

	unbind_chip(&chip);
	check(is_gone(through));
	check(dev_copy(&b, back.va, VA, PAGE));
	must_new_queue(&b);
	must_fail(bind_one(b.fd, b.vm, DRM_TXDA_BIND_MAP, imported, 0, 2 * VA + MIB, 4 * MIB),
		  ENODEV);

	/* A new client allocates all of the memory and fills it. */
	bind_chip(&chip);
	again = must_open(0);
	left = must_memory(again).device_mappable - must_memory(again).device_used;
	for (filled = 0; filled < 8 && left > 8 * MIB; filled++, left -= 4 * MIB) {
		must(bo_create(again, 4 * MIB, DEVICE, 0, 0, &handle));
		cpu = must_map(again, handle, 4 * MIB);
		memset(cpu, 0x5e, 4 * MIB);
	}
	check(cpu);
	memset(back.cpu, 0, 4 * MIB);
	check(dev_copy(&b, back.va, VA, PAGE));
	check(is_filled(back.cpu, 4 * MIB, 0));
	must_new_queue(&b);
	check(dev_fill(&b, VA, 4 * MIB, 0xbad));
	must_new_queue(&b);
	check(is_filled(cpu, 4 * MIB, 0x5e5e5e5e));
	must_fail(bind_one(b.fd, b.vm, DRM_TXDA_BIND_MAP, imported, 0, VA, 4 * MIB), ENODEV);
	must(bind_one(b.fd, b.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, 4 * MIB));
	must(dev_fill(&b, back.va, PAGE, 1));
}

/* The importer goes first. */
TEST(importer)
{
	struct client b = must_client(1);
	struct chip chip = must_chip(b.fd);
	int fd = must_open(0), again;
	uint32_t device, host, imported[2], *cpu;
	uint64_t used = must_memory(fd).device_used;

	must(bo_create(fd, 4 * MIB, DEVICE, 0, 0, &device));
	must(bo_create(fd, 4 * MIB, HOST, 0, 0, &host));
	imported[0] = must_import(b.fd, must_export(fd, device));
	imported[1] = must_import(b.fd, must_export(fd, host));
	for (int i = 0; i < 2; i++)
		must(bind_one(b.fd, b.vm, DRM_TXDA_BIND_MAP, imported[i], 0, VA + i * 4 * MIB,
			      4 * MIB));
	must(dev_fill(&b, VA, 8 * MIB, 0x66));
	unbind_chip(&chip);
	cpu = must_map(fd, device, 4 * MIB);
	check(is_filled(cpu, 4 * MIB, 0x66));
	munmap(cpu, 4 * MIB);
	cpu = must_map(fd, host, 4 * MIB);
	check(is_filled(cpu, 4 * MIB, 0x66));
	bind_chip(&chip);
	again = must_open(1);
	/* What the gone chip's file has keeps the buffer, and only that. */
	must(gem_close(fd, device));
	check_equal(must_memory(fd).device_used, used + 4 * MIB);
	/* A mapping holds its file. */
	must(munmap_mem(&b.stream.mem));
	close(b.fd);
	for (int i = 3; i < 256; i++) {
		if (i != fd && i != again)
			close(i);
	}
	must_settle(fd, used);
}

/* User memory is given back when the file closes, long after the chip. */
TEST(user_memory)
{
	char *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct client c = must_client(0);
	struct chip chip = must_chip(c.fd);
	struct drm_txda_bo_from_userptr arg = {.va = (uintptr_t)memory, .size = MIB};

	check(memory != MAP_FAILED);
	must(call(c.fd, DRM_IOCTL_TXDA_BO_FROM_USERPTR, &arg));
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, arg.handle, 0, VA, MIB));
	must(dev_fill(&c, VA, MIB, 0x31));
	unbind_chip(&chip);
	check(is_filled(memory, MIB, 0x31));
	memset(memory, 1, MIB);
	bind_chip(&chip);
	close(c.fd);
	memset(memory, 2, MIB);
}

static void pin_memory(void *arg)
{
	const struct client *c = arg;
	char *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct drm_txda_bo_from_userptr user = {.va = (uintptr_t)memory, .size = MIB};

	check(memory != MAP_FAILED);
	must(call(c->fd, DRM_IOCTL_TXDA_BO_FROM_USERPTR, &user));
	must(bind_one(c->fd, c->vm, DRM_TXDA_BIND_MAP, user.handle, 0, VA, MIB));
	must(gem_close(c->fd, user.handle));
}

/* What the stalled process does: it ends the last use of its own memory. */
static void unmap_last(void *arg)
{
	const struct client *c = arg;

	must(bind_one(c->fd, c->vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, MIB));
}

/* Memory of a process whose mmap_lock is held is given back, and a reset waits for nobody. */
TEST(user_memory_of_stalled)
{
	struct client c = must_client(0);
	struct chip chip = must_chip(c.fd);
	struct stall stall;
	pid_t resetter;

	/* Made by the child, whose memory it is. */
	stall = must_stall(pin_memory, unmap_last, &c);
	must_become(stall_is_done(&stall));
	resetter = must_fork();
	if (!resetter) {
		reset_chip(&chip);
		_exit(0);
	}
	must_become(waitpid(resetter, NULL, WNOHANG) == resetter);
	stall_end(&stall);
}

/* Binds that wait when the chip goes: their fences come, with an error. */
TEST(binds)
{
	struct client d = must_client(0);
	struct chip chip = must_chip(d.fd);
	struct gate gate = must_gate(d.fd, d.vm);
	uint32_t bo, bound = must_syncobj(d.fd);
	struct drm_txda_sync syncs[2] = {wait_for(gate.fence), signals(bound)};
	struct drm_txda_bind_op op = {.flags = DRM_TXDA_BIND_MAP, .va = VA, .size = MIB};
	int file;

	must(bo_create(d.fd, MIB, DEVICE, 0, 0, &bo));
	op.bo = bo;
	op.syncs = array_of(syncs, 2, sizeof(syncs[0]));
	must(bind_async(d.fd, d.vm, &op, 1));
	file = must_sync_file(d.fd, bound);
	check_equal(sync_file_status(file), 1);
	unbind_chip(&chip);
	must_become(sync_file_status(file) != 1);
	check(sync_file_status(file) < 0);
	bind_chip(&chip);
	close(d.fd);
}

/* Whether reading the word makes the kernel map its page first. */
static bool is_unmapped(const volatile uint32_t *word)
{
	struct rusage before, after;

	check(!getrusage(RUSAGE_SELF, &before));
	(void)*word;
	check(!getrusage(RUSAGE_SELF, &after));
	return after.ru_minflt > before.ru_minflt;
}

/* A function reset in between: the same files go on, address spaces are lost, memory is empty. */
TEST(function_reset)
{
	struct client c = must_client(0), d;
	struct chip chip = must_chip(c.fd);
	struct mem m = must_mem_in(c.fd, c.vm, 4 * MIB, DEVICE);
	uint32_t handle;
	char path[128];

	must(dev_fill(&c, m.va, 4 * MIB, 0x99));
	check(is_filled(m.cpu, 4 * MIB, 0x99));
	check(!is_unmapped(m.cpu));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/reset", chip.pci);
	must_write(path, "1");
	check_equal(vm_state(c.fd, c.vm), DRM_TXDA_VM_LOST);
	/* Nobody could have looked into the aperture meanwhile. */
	check(is_unmapped(m.cpu));
	check(is_filled(m.cpu, 4 * MIB, 0));
	must_fail(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, m.va, 4 * MIB), EIO);
	must_fail(submit(c.fd, c.queue, 0, 0, NULL, 0), EIO);
	must(queue_destroy(c.fd, c.queue));
	must(vm_destroy(c.fd, c.vm));

	/* What was shareable is usable in a new one. */
	must(bo_create(c.fd, 4 * MIB, DEVICE, 0, 0, &handle));
	d = must_client(0);
	c.vm = must_vm(c.fd);
	c.queue = 0;
	c.stream = must_stream(c.fd, c.vm);
	must_new_queue(&c);
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, handle, 0, VA, 4 * MIB));
	must(dev_fill(&c, VA, 4 * MIB, 0x12));
	check(is_filled(must_map(c.fd, handle, 4 * MIB), 4 * MIB, 0x12));
	must(submit_wait(d.fd, d.queue, 0, 0));
}

/* Somebody who reads a huge page of a mapping all the time. */
struct reader {
	pthread_t thread;
	const volatile uint32_t *word;
	atomic_bool *stop;
};

static void *read_on(void *arg)
{
	struct reader *reader = arg;

	while (!atomic_load(reader->stop))
		(void)*reader->word;
	return NULL;
}

/* Accesses in the middle of a function reset wait for it, and leave no lock of the process behind. */
TEST(read_meanwhile)
{
	struct client c = must_client(0);
	struct chip chip = must_chip(c.fd);
	struct reader readers[4];
	atomic_bool stop = false;
	uint32_t handle, *words;
	char path[128];

	must(bo_create(c.fd, 4 * MIB, DEVICE, 0, 0, &handle));
	words = must_map(c.fd, handle, 4 * MIB);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/reset", chip.pci);
	for (size_t i = 0; i < 4; i++) {
		readers[i] = (struct reader){.word = words + i % 2 * 2 * MIB / 4, .stop = &stop};
		check(!pthread_create(&readers[i].thread, NULL, read_on, &readers[i]));
	}
	for (int i = 0; i < 3; i++)
		must_write(path, "1");
	atomic_store(&stop, true);
	for (size_t i = 0; i < 4; i++)
		check(!pthread_join(readers[i].thread, NULL));
	check(is_filled(words, 4 * MIB, 0));
	check(!munmap(words, 4 * MIB));
	close(c.fd);
}

static uint32_t module_users(void)
{
	FILE *f = fopen("/sys/module/txda/refcnt", "r");
	uint32_t users;

	check(f && fscanf(f, "%u", &users) == 1);
	fclose(f);
	return users;
}

struct faulter {
	const volatile uint32_t *word;
	atomic_int thread;
	atomic_bool stop;
};

static void *fault_on(void *arg)
{
	struct faulter *faulter = arg;

	atomic_store(&faulter->thread, (int)syscall(SYS_gettid));
	while (!atomic_load(&faulter->stop))
		(void)*faulter->word;
	return NULL;
}

/* Whether a fault was seen to wait for a reset that lasts, with its mapping and its file gone. */
static bool lose_file_in_fault(const struct chip *chip, atomic_bool *begin)
{
	struct faulter faulter = {0};
	bool seen = false;
	pthread_t thread;
	pid_t resetter;
	uint32_t handle, users, *words;
	int fd;

	/* It has nothing of the chip open. */
	atomic_store(begin, false);
	resetter = must_fork();
	if (!resetter) {
		while (!atomic_load(begin))
			usleep(1000);
		reset_chip(chip);
		_exit(0);
	}
	fd = must_open(0);
	must(bo_create(fd, MIB, DEVICE, 0, 0, &handle));
	words = must_map(fd, handle, MIB);
	faulter.word = words;
	check(!pthread_create(&thread, NULL, fault_on, &faulter));
	while (!atomic_load(&faulter.thread))
		usleep(1000);
	atomic_store(begin, true);
	while (!seen && waitpid(resetter, NULL, WNOHANG) != resetter) {
		/* It runs all the time unless it waits. */
		if (state_of(getpid(), atomic_load(&faulter.thread)) != 'S')
			continue;
		check(mmap(words, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		      words);
		close(fd);
		users = module_users();
		seen = state_of(getpid(), atomic_load(&faulter.thread)) == 'S';
		if (seen)
			check(users);
		fd = -1;
		break;
	}
	atomic_store(&faulter.stop, true);
	check(!pthread_join(thread, NULL));
	munmap(words, MIB);
	if (fd >= 0)
		close(fd);
	waitpid(resetter, NULL, 0);
	return seen;
}

/* The module stays as long as one of its faults waits, which only the file of a mapping tells it. */
TEST(fault_without_file)
{
	atomic_bool *begin =
		mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd = must_open(0), tries = 20;
	struct chip chip = must_chip(fd);

	check(begin != MAP_FAILED);
	close(fd);
	while (!lose_file_in_fault(&chip, begin))
		if (!--tries)
			fail("no fault waited for a reset");
}

/*
 * A chip that neither stops nor can be reset might still write to what it has mapped of another
 * chip: nobody else gets that memory before it was reset.
 */
TEST(cut_off)
{
	struct client c = must_client(0), again;
	struct chip chip = must_chip(c.fd);
	int other = must_open(1), buf;
	uint64_t before = must_memory(other).device_used;
	uint32_t handle, hung, vm;
	char path[128];

	must(bo_create(other, 4 * MIB, DEVICE, 0, 0, &handle));
	buf = must_export(other, handle);
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, must_import(c.fd, buf), 0, VA, 4 * MIB));
	must(dev_fill(&c, VA, 4 * MIB, 1));
	hung = must_queue_for(c.fd, c.vm, 500);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/reset_method", chip.pci);
	must_write(path, "\n");
	vmhost("stick-reset 0");
	vmhost("liveness-stop 0");
	put_fill(&c.stream, VA, 4 * MIB, 2);
	must_fail(submit_wait(c.fd, hung, c.stream.mem.va, c.stream.bytes), ETIME);
	must_become(vm_create(c.fd, &vm) == -EIO);

	must(gem_close(other, handle));
	close(buf);
	munmap_mem(&c.stream.mem);
	close(c.fd);
	/* Freeing may lag behind. */
	for (int i = 0; i < 100; i++, usleep(10000))
		check_equal(must_memory(other).device_used, before + 4 * MIB);

	must_write(path, "default");
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/reset", chip.pci);
	must_write(path, "1");
	must_settle(other, before);
	again = must_client(0);
	must(submit_wait(again.fd, again.queue, 0, 0));
}

static bool is_master(const struct chip *chip)
{
	char path[128];
	uint16_t command;
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/config", chip->pci);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	check(fd >= 0 && pread(fd, &command, 2, 4) == 2);
	close(fd);
	return command & 4;
}

static void must_stay(const volatile uint32_t *word)
{
	uint32_t seen = *word;

	for (int i = 0; i < 300; i++, usleep(1000))
		check_equal(*word, seen);
}

/*
 * Registers that do not answer say nothing of DMA: memory is given back, and fences signal, when the
 * chip has been cut off.
 */
static void must_cut_off_silent(bool unmap)
{
	const uint64_t bytes = 32 * MIB;
	enum { PACKETS = 4096 };
	struct client c = must_client(0);
	struct chip chip = must_chip(c.fd);
	uint32_t *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct drm_txda_bo_from_userptr user = {.va = (uintptr_t)memory, .size = bytes};
	struct stream s = {.mem = must_mem(c.fd, c.vm, PACKETS * sizeof(struct txda_pkt_fill))};
	uint32_t queue = must_queue_for(c.fd, c.vm, 600000), done;

	check(memory != MAP_FAILED);
	memset(memory, 0, bytes);
	must(call(c.fd, DRM_IOCTL_TXDA_BO_FROM_USERPTR, &user));
	must(bind_one(c.fd, c.vm, DRM_TXDA_BIND_MAP, user.handle, 0, VA, bytes));
	for (uint32_t i = 0; i < PACKETS; i++)
		put_fill(&s, VA, bytes, i + 1);
	done = must_submit(c.fd, queue, &s);
	must_become(*(volatile uint32_t *)memory > 1);
	vmhost("stick-registers 0");
	if (unmap) {
		check(bind_one(c.fd, c.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA, bytes));
		must(gem_close(c.fd, user.handle));
		if (!pinned_kib())
			must_stay(memory);
	} else {
		must(queue_destroy(c.fd, queue));
		check(fence_status(c.fd, done) < 0);
		must_stay(memory);
	}
	must_become(!is_master(&chip));
	check(fence_status(c.fd, done) < 0);
	must_stay(memory);

	reset_chip(&chip);
	if (unmap)
		must(queue_destroy(c.fd, queue));
	else
		must(gem_close(c.fd, user.handle));
	must(queue_destroy(c.fd, c.queue));
	must(vm_destroy(c.fd, c.vm));
	must_become(!pinned_kib());
	must_stay(memory);
	munmap(memory, bytes);
	munmap_mem(&s.mem);
	munmap_mem(&c.stream.mem);
	close(c.fd);
	c = must_client(0);
	must(submit_wait(c.fd, c.queue, 0, 0));
}

TEST(silent_unmap)
{
	must_cut_off_silent(true);
}

TEST(silent_destroy)
{
	must_cut_off_silent(false);
}

/* A chip falls off the bus: whatever is asked of it fails as if it were gone already. */
TEST(falls_off)
{
	unsigned int nodes = node_count();
	struct client c = must_client(0), again;
	uint32_t handle, vm, queue;
	int err = 0;

	vmhost("disappear 0");
	for (int64_t deadline = now_ns() + PATIENCE; err != -ENODEV;) {
		check(now_ns() < deadline);
		err = vm_create(c.fd, &vm);
		if (!err)
			err = queue_create_as(c.fd, vm, DRM_TXDA_QUEUE_COPY, 0, 0, &queue);
		if (!err)
			err = bo_create(c.fd, MIB, DEVICE, 0, 0, &handle);
		if (!err)
			err = submit(c.fd, c.queue, 0, 0, NULL, 0);
		if (err)
			must_fail(err, ENODEV);
	}
	/* For good, also when its recovery was tried and given up. */
	for (int i = 0; i < 100; i++) {
		must_fail(bo_create(c.fd, PAGE, DEVICE, 0, 0, &handle), ENODEV);
		usleep(10000);
	}
	/* A working chip in its place. */
	vmhost("appear 0");
	vmhost("del 0");
	vmhost("add 0");
	must_become(node_count() == nodes);
	again = must_client(0);
	must(submit_wait(again.fd, again.queue, 0, 0));
}

/* Contents in host memory go with their owner; the kernel may still take memory before that. */
TEST(idle)
{
	int fd = must_open(0), again;
	struct chip chip = must_chip(fd);
	uint32_t cold, host, other, filling;
	uint64_t bytes = 1ull << 32;

	must(bo_create(fd, 4 * MIB, DEVICE, 0, 0, &cold));
	must(bo_create(fd, 4 * MIB, HOST, 0, 0, &host));
	must(bo_create(fd, 4 * MIB, DEVICE, 0, 0, &other));
	must(advise(fd, cold, DRM_TXDA_COLD));
	must(advise(fd, host, DRM_TXDA_DONTNEED));
	while (bytes >= PAGE)
		if (bo_create(fd, bytes, DEVICE, DRM_TXDA_BO_NO_MMAP, 0, &filling))
			bytes /= 2;
	check_equal(must_info(fd, cold).place, HOST);
	must(advise(fd, other, DRM_TXDA_COLD));

	unbind_chip(&chip);
	must_fail(advise(fd, cold, DRM_TXDA_WILLNEED), ENODEV);
	must_write("/proc/sys/vm/drop_caches", "2");
	close(fd);
	bind_chip(&chip);
	again = must_open(0);
	must(bo_create(again, 4 * MIB, DEVICE, 0, 0, &other));
	check(is_filled(must_map(again, other, 4 * MIB), 4 * MIB, 0));
	check_equal(must_memory(again).host_used, 0);
}

int main(int argc, char **argv)
{
	return run_tests(argc, argv);
}
