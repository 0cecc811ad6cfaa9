// SPDX-License-Identifier: MIT
#include "common.h"

#include <stdarg.h>
#include <sys/ioctl.h>
#include <time.h>

#include <linux/sync_file.h>

/* ---- Tests ---------------------------------------------------------------------------------- */

#define EXIT_SKIP 77

void fail_at(const char *file, int line, const char *format, ...)
{
	const char *base = strrchr(file, '/');
	va_list args;

	fprintf(stderr, "  %s:%d: ", base ? base + 1 : file, line);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	/* Not exit(): a test may have threads and mappings that are better left alone. */
	_exit(1);
}

void skip(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "  ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(EXIT_SKIP);
}

const char *strerror_of(int err)
{
	return err ? strerrordesc_np(err < 0 ? -err : err) : "success";
}

#define TESTS_MAX 64

static struct test {
	const char *name;
	void (*run)(void);
} tests[TESTS_MAX];
static size_t n_tests;

void add_test(const char *name, void (*run)(void))
{
	if (n_tests == TESTS_MAX)
		abort();
	tests[n_tests++] = (struct test){name, run};
}

static bool is_test(const char *name)
{
	for (size_t i = 0; i < n_tests; i++) {
		if (!strcmp(tests[i].name, name))
			return true;
	}
	return false;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], name))
			return true;
	}
	return argc <= 1;
}

static int run_test(const struct test *test)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		perror("fork");
		return 1;
	}
	if (!pid) {
		test->run();
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid)
		return 1;
	if (WIFSIGNALED(status)) {
		fprintf(stderr, "  killed by signal %d\n", WTERMSIG(status));
		return 1;
	}
	return WEXITSTATUS(status);
}

int run_tests(int argc, char **argv)
{
	unsigned int passed = 0, failed = 0, skipped = 0;

	for (int i = 1; i < argc; i++) {
		for (char *at = argv[i]; (at = strchr(at, '-'));)
			*at = '_';
		if (!is_test(argv[i])) {
			fprintf(stderr, "no test is called %s\n", argv[i]);
			return 1;
		}
	}
	if (!node_count()) {
		fprintf(stderr, "no node of txda\n");
		return EXIT_SKIP;
	}
	for (size_t i = 0; i < n_tests; i++) {
		int64_t begin = now_ns();
		int status;

		if (!is_wanted(tests[i].name, argc, argv))
			continue;
		status = run_test(&tests[i]);
		printf("%s %s (%lld ms)\n",
		       status == EXIT_SKIP ? "SKIP"
		       : status		   ? "FAIL"
					   : "ok",
		       tests[i].name, (long long)(now_ns() - begin) / 1000000);
		passed += !status;
		skipped += status == EXIT_SKIP;
		failed += status && status != EXIT_SKIP;
	}
	printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
	return failed || !(passed + skipped);
}

int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * SECOND + ts.tv_nsec;
}

pid_t must_fork(void)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	check(pid >= 0);
	return pid;
}

void must_end(pid_t pid)
{
	int status;

	check(waitpid(pid, &status, 0) == pid);
	check_equal(status, 0);
}

void must_kill(pid_t pid)
{
	int status;

	must(kill(pid, SIGKILL) ? -errno : 0);
	check(waitpid(pid, &status, 0) == pid);
	check(WIFSIGNALED(status));
}

void vmhost(const char *format, ...)
{
	char line[256] = "vmhost ";
	va_list args;

	if (access("/run/txda.ctl", W_OK))
		skip("no rig to ask for a fault");
	va_start(args, format);
	vsnprintf(line + 7, sizeof(line) - 7, format, args);
	va_end(args);
	if (system(line))
		fail("%s", line);
}

bool is_in_debugfs(const char *name, const char *text)
{
	char line[256];
	bool found = false;
	FILE *f;

	snprintf(line, sizeof(line), "cat /sys/kernel/debug/accel/*/%s", name);
	f = popen(line, "r");
	check(f);
	while (fgets(line, sizeof(line), f))
		found |= strstr(line, text) != NULL;
	pclose(f);
	return found;
}

/* ---- Nodes ---------------------------------------------------------------------------------- */

int call(int fd, unsigned long request, void *arg)
{
	int ret;

	do {
		ret = ioctl(fd, request, arg);
	} while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : 0;
}

int query(int fd, uint32_t type, void *answer, uint32_t bytes)
{
	struct drm_txda_dev_query arg = {.type = type, .answer = answer_of(answer, bytes)};

	return call(fd, DRM_IOCTL_TXDA_DEV_QUERY, &arg);
}

uint64_t chip_resets(int fd)
{
	struct drm_txda_reset_info info = {0};

	must(query(fd, DRM_TXDA_QUERY_RESET, &info, sizeof(info)));
	return info.chip_resets;
}

int query_port(int fd, uint32_t port, struct drm_txda_port_info *ret_info)
{
	struct drm_txda_dev_query arg = {
		.type = DRM_TXDA_QUERY_PORT,
		.index = port,
		.answer = answer_of(ret_info, sizeof(*ret_info)),
	};

	return call(fd, DRM_IOCTL_TXDA_DEV_QUERY, &arg);
}

struct drm_txda_answer answer_of(void *to, uint32_t bytes)
{
	return (struct drm_txda_answer){.size = bytes, .pointer = (uintptr_t)to};
}

void must_answer(int fd, unsigned long request, const void *good, size_t bytes, size_t at,
		 uint32_t known)
{
	static unsigned char to[DRM_TXDA_MAX_ANSWER_BYTES + 1];
	const uint32_t sizes[] = {0, 1, known - 1, known, known + 1, DRM_TXDA_MAX_ANSWER_BYTES};
	char arg[256];
	struct drm_txda_answer *answer = (void *)(arg + at);

	check(bytes <= sizeof(arg));
	memcpy(arg, good, bytes);
	*answer = answer_of(NULL, UINT32_MAX);
	must(call(fd, request, arg));
	check_equal(answer->size, known);

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		memcpy(arg, good, bytes);
		memset(to, 0xa5, sizeof(to));
		*answer = answer_of(to, sizes[i]);
		must(call(fd, request, arg));
		check_equal(answer->size, known);
		for (uint32_t k = known; k < sizes[i]; k++)
			check_equal(to[k], 0);
		check_equal(to[sizes[i]], 0xa5);
	}

	memcpy(arg, good, bytes);
	*answer = answer_of(to, DRM_TXDA_MAX_ANSWER_BYTES + 1);
	must_fail(call(fd, request, arg), E2BIG);
	*answer = answer_of(to, UINT32_MAX);
	must_fail(call(fd, request, arg), E2BIG);
	*answer = answer_of((void *)8, known);
	must_fail(call(fd, request, arg), EFAULT);
	*answer = answer_of((void *)(uintptr_t)(UINT64_MAX - 7), known);
	must_fail(call(fd, request, arg), EFAULT);
	*answer = answer_of(to, known);
	answer->pad = 1;
	must_fail(call(fd, request, arg), EINVAL);
}

/* Other drivers' nodes and chips that are gone have no topology. */
static int open_node(unsigned int minor, struct drm_txda_topology_info *ret_topology)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/dev/accel/accel%u", minor);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && query(fd, DRM_TXDA_QUERY_TOPOLOGY, ret_topology, sizeof(*ret_topology))) {
		close(fd);
		return -1;
	}
	return fd;
}

unsigned int node_count(void)
{
	struct drm_txda_topology_info topology;
	unsigned int n = 0;

	for (unsigned int i = 0; i < 64; i++) {
		int fd = open_node(i, &topology);

		if (fd < 0)
			continue;
		n++;
		close(fd);
	}
	return n;
}

int must_open(unsigned int index)
{
	struct drm_txda_topology_info topology;

	for (unsigned int i = 0; i < 64; i++) {
		int fd = open_node(i, &topology);

		if (fd >= 0 && topology.card_index == index)
			return fd;
		if (fd >= 0)
			close(fd);
	}
	skip("there is no chip %u", index);
}

/* ---- Memory --------------------------------------------------------------------------------- */

int vm_create(int fd, uint32_t *ret_vm)
{
	struct drm_txda_vm_create arg = {0};
	int err = call(fd, DRM_IOCTL_TXDA_VM_CREATE, &arg);

	if (!err)
		*ret_vm = arg.id;
	return err;
}

int vm_destroy(int fd, uint32_t vm)
{
	struct drm_txda_vm_destroy arg = {.id = vm};

	return call(fd, DRM_IOCTL_TXDA_VM_DESTROY, &arg);
}

uint32_t must_vm(int fd)
{
	uint32_t vm = 0;

	must(vm_create(fd, &vm));
	check(vm);
	return vm;
}

uint32_t vm_state(int fd, uint32_t vm)
{
	struct drm_txda_vm_get_state arg = {.id = vm};

	must(call(fd, DRM_IOCTL_TXDA_VM_GET_STATE, &arg));
	return arg.state;
}

int bo_create(int fd, uint64_t bytes, uint32_t places, uint32_t flags, uint32_t vm,
	      uint32_t *ret_handle)
{
	struct drm_txda_bo_create arg = {
		.size = bytes,
		.places = places,
		.flags = flags,
		.vm_id = vm,
	};
	int err = call(fd, DRM_IOCTL_TXDA_BO_CREATE, &arg);

	if (!err)
		*ret_handle = arg.handle;
	return err;
}

int gem_close(int fd, uint32_t handle)
{
	struct drm_gem_close arg = {.handle = handle};

	return call(fd, DRM_IOCTL_GEM_CLOSE, &arg);
}

void *must_map(int fd, uint32_t handle, uint64_t bytes)
{
	struct drm_txda_bo_mmap_offset arg = {.handle = handle};
	void *at;

	must(call(fd, DRM_IOCTL_TXDA_BO_MMAP_OFFSET, &arg));
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)arg.offset);
	if (at == MAP_FAILED)
		fail("mmap: %s", strerror_of(errno));
	return at;
}

struct drm_txda_array array_of(const void *elements, uint32_t count, uint32_t stride)
{
	return (struct drm_txda_array){
		.stride = stride,
		.count = count,
		.array = (uintptr_t)elements,
	};
}

int bind_one(int fd, uint32_t vm, uint32_t kind, uint32_t handle, uint64_t offset, uint64_t va,
	     uint64_t bytes)
{
	const struct drm_txda_bind_op op = {
		.flags = kind,
		.bo = handle,
		.bo_offset = offset,
		.va = va,
		.size = bytes,
	};
	struct drm_txda_vm_bind arg = {
		.vm_id = vm,
		.ops = array_of(&op, 1, sizeof(op)),
	};

	return call(fd, DRM_IOCTL_TXDA_VM_BIND, &arg);
}

int bind_async(int fd, uint32_t vm, const struct drm_txda_bind_op *ops, uint32_t count)
{
	struct drm_txda_vm_bind arg = {
		.vm_id = vm,
		.flags = DRM_TXDA_VM_BIND_ASYNC,
		.ops = array_of(ops, count, sizeof(*ops)),
	};
	int err = call(fd, DRM_IOCTL_TXDA_VM_BIND, &arg);

	if (arg.done)
		fail("an asynchronous bind says that %u are done", arg.done);
	return err;
}

struct mem must_mem_in(int fd, uint32_t vm, uint64_t bytes, uint32_t place)
{
	static uint64_t next_va = 1ull << 32;
	struct mem mem = {.bytes = (bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1)};

	must(bo_create(fd, mem.bytes, place, 0, vm, &mem.handle));
	mem.cpu = must_map(fd, mem.handle, mem.bytes);
	/* A hole behind each, so that an overrun shows. */
	mem.va = __atomic_fetch_add(&next_va, mem.bytes + PAGE, __ATOMIC_RELAXED);
	must(bind_one(fd, vm, DRM_TXDA_BIND_MAP, mem.handle, 0, mem.va, mem.bytes));
	return mem;
}

struct mem must_mem(int fd, uint32_t vm, uint64_t bytes)
{
	return must_mem_in(fd, vm, bytes, DRM_TXDA_PLACE_HOST);
}

/* ---- Queues --------------------------------------------------------------------------------- */

int queue_create_as(int fd, uint32_t vm, uint32_t class, uint32_t priority, uint32_t timeout_ms,
		    uint32_t *ret_queue)
{
	struct drm_txda_queue_create arg = {
		.vm_id = vm,
		.class_ = class,
		.priority = priority,
		.timeout_ms = timeout_ms,
	};
	int err = call(fd, DRM_IOCTL_TXDA_QUEUE_CREATE, &arg);

	if (!err)
		*ret_queue = arg.id;
	return err;
}

int queue_destroy(int fd, uint32_t queue)
{
	struct drm_txda_queue_destroy arg = {.id = queue};

	return call(fd, DRM_IOCTL_TXDA_QUEUE_DESTROY, &arg);
}

uint32_t must_queue_for(int fd, uint32_t vm, uint32_t timeout_ms)
{
	uint32_t queue = 0;

	must(queue_create_as(fd, vm, DRM_TXDA_QUEUE_COMPUTE, DRM_TXDA_PRIORITY_NORMAL, timeout_ms,
			     &queue));
	check(queue);
	return queue;
}

uint32_t must_queue(int fd, uint32_t vm)
{
	return must_queue_for(fd, vm, 0);
}

struct drm_txda_queue_get_state must_state(int fd, uint32_t queue)
{
	struct drm_txda_queue_get_state arg = {.id = queue};

	must(call(fd, DRM_IOCTL_TXDA_QUEUE_GET_STATE, &arg));
	return arg;
}

struct drm_txda_fault must_fault_of(int fd, uint32_t queue)
{
	struct drm_txda_fault fault;
	struct drm_txda_queue_get_state arg = {
		.id = queue,
		.fault = answer_of(&fault, sizeof(fault)),
	};

	must(call(fd, DRM_IOCTL_TXDA_QUEUE_GET_STATE, &arg));
	return fault;
}

int submit_jobs(int fd, uint32_t queue, const struct drm_txda_job *jobs, uint32_t count)
{
	struct drm_txda_queue_submit arg = {
		.queue_id = queue,
		.jobs = array_of(jobs, count, sizeof(*jobs)),
	};

	return call(fd, DRM_IOCTL_TXDA_QUEUE_SUBMIT, &arg);
}

int submit(int fd, uint32_t queue, uint64_t va, uint32_t bytes, const struct drm_txda_sync *syncs,
	   uint32_t n_syncs)
{
	const struct drm_txda_job job = {
		.stream_va = va,
		.stream_bytes = bytes,
		.syncs = array_of(syncs, n_syncs, sizeof(*syncs)),
	};

	return submit_jobs(fd, queue, &job, 1);
}

uint32_t must_submit(int fd, uint32_t queue, const struct stream *s)
{
	uint32_t done = must_syncobj(fd);
	struct drm_txda_sync sync = signals(done);

	must(submit(fd, queue, s ? s->mem.va : 0, s ? s->bytes : 0, &sync, 1));
	return done;
}

int submit_wait(int fd, uint32_t queue, uint64_t va, uint32_t bytes)
{
	uint32_t done = must_syncobj(fd);
	struct drm_txda_sync sync = signals(done);
	int err = submit(fd, queue, va, bytes, &sync, 1);

	if (!err)
		err = fence_status(fd, done);
	syncobj_destroy(fd, done);
	return err;
}

struct stream must_stream(int fd, uint32_t vm)
{
	return (struct stream){.mem = must_mem(fd, vm, PAGE)};
}

#define LONG_BO	   (256 * MIB)
#define LONG_PARTS 256u
#define LONG_VA	   (1ull << 36)

struct stream must_long_fill(int fd, uint32_t vm)
{
	struct drm_txda_bind_op ops[LONG_PARTS] = {0};
	struct drm_txda_vm_bind arg = {.vm_id = vm,
				       .ops = array_of(ops, LONG_PARTS, sizeof(ops[0]))};
	struct stream s = must_stream(fd, vm);
	uint32_t handle;

	must(bo_create(fd, LONG_BO, DRM_TXDA_PLACE_DEVICE, 0, vm, &handle));
	for (uint32_t i = 0; i < LONG_PARTS; i++)
		ops[i] = (struct drm_txda_bind_op){
			.flags = DRM_TXDA_BIND_MAP,
			.bo = handle,
			.va = LONG_VA + i * LONG_BO,
			.size = LONG_BO,
		};
	must(call(fd, DRM_IOCTL_TXDA_VM_BIND, &arg));
	put_fill(&s, LONG_VA, LONG_PARTS * LONG_BO, 1);
	return s;
}

struct stream must_block(int fd, uint32_t vm, struct mem *ret_word)
{
	struct stream s = must_stream(fd, vm);

	*ret_word = must_mem(fd, vm, 8);
	put_nop(&s);
	put_wait(&s, ret_word->va, 1);
	return s;
}

struct gate must_gate(int fd, uint32_t vm)
{
	struct gate gate = {.queue = must_queue_for(fd, vm, 60000)};
	struct stream s = must_block(fd, vm, &gate.word);

	gate.fence = must_submit(fd, gate.queue, &s);
	return gate;
}

void gate_open(const struct gate *gate)
{
	*(volatile uint64_t *)gate->word.cpu = 1;
}

void put_bytes(struct stream *s, const void *bytes, uint32_t count)
{
	check(count <= s->mem.bytes - s->bytes && count % 8 == 0);
	memcpy((char *)s->mem.cpu + s->bytes, bytes, count);
	s->bytes += count;
}

void put_nop(struct stream *s)
{
	const struct txda_pkt pkt = {TXDA_PKT_NOP, 0, sizeof(pkt)};

	put_bytes(s, &pkt, sizeof(pkt));
}

void put_copy(struct stream *s, uint64_t dst, uint64_t src, uint64_t bytes)
{
	const struct txda_pkt_copy pkt = {{TXDA_PKT_COPY, 0, sizeof(pkt)}, dst, src, bytes};

	put_bytes(s, &pkt, sizeof(pkt));
}

void put_fill(struct stream *s, uint64_t dst, uint64_t bytes, uint32_t value)
{
	const struct txda_pkt_fill pkt = {{TXDA_PKT_FILL, 0, sizeof(pkt)}, dst, bytes, value, 0};

	put_bytes(s, &pkt, sizeof(pkt));
}

static void put_fence(struct stream *s, uint16_t op, uint64_t va, uint64_t value)
{
	const struct txda_pkt_fence pkt = {{op, 0, sizeof(pkt)}, va, value};

	put_bytes(s, &pkt, sizeof(pkt));
}

void put_signal(struct stream *s, uint64_t va, uint64_t value)
{
	put_fence(s, TXDA_PKT_SIGNAL, va, value);
}

void put_wait(struct stream *s, uint64_t va, uint64_t value)
{
	put_fence(s, TXDA_PKT_WAIT, va, value);
}

void put_collective(struct stream *s, uint16_t op, uint64_t dst, uint64_t src, uint64_t count,
		    uint32_t dtype, uint32_t group)
{
	const struct txda_pkt_collective pkt = {
		{op, 0, sizeof(pkt)}, dst, src, count, dtype, group};

	put_bytes(s, &pkt, sizeof(pkt));
}

/* ---- Syncobjs ------------------------------------------------------------------------------- */

uint32_t must_syncobj(int fd)
{
	struct drm_syncobj_create arg = {0};

	must(call(fd, DRM_IOCTL_SYNCOBJ_CREATE, &arg));
	return arg.handle;
}

void syncobj_destroy(int fd, uint32_t handle)
{
	struct drm_syncobj_destroy arg = {.handle = handle};

	must(call(fd, DRM_IOCTL_SYNCOBJ_DESTROY, &arg));
}

struct drm_txda_sync wait_for(uint32_t handle)
{
	return (struct drm_txda_sync){.flags = DRM_TXDA_SYNC_WAIT, .handle = handle};
}

struct drm_txda_sync signals(uint32_t handle)
{
	return (struct drm_txda_sync){.flags = DRM_TXDA_SYNC_SIGNAL, .handle = handle};
}

struct drm_txda_sync wait_for_point(uint32_t handle, uint64_t point)
{
	return (struct drm_txda_sync){
		.flags = DRM_TXDA_SYNC_WAIT | DRM_TXDA_SYNC_TIMELINE,
		.handle = handle,
		.point = point,
	};
}

struct drm_txda_sync signals_point(uint32_t handle, uint64_t point)
{
	return (struct drm_txda_sync){
		.flags = DRM_TXDA_SYNC_SIGNAL | DRM_TXDA_SYNC_TIMELINE,
		.handle = handle,
		.point = point,
	};
}

int syncobj_wait(int fd, uint32_t handle, uint64_t point, int64_t timeout_ns)
{
	int64_t deadline = now_ns() + timeout_ns;

	if (point) {
		struct drm_syncobj_timeline_wait arg = {
			.handles = (uintptr_t)&handle,
			.points = (uintptr_t)&point,
			.timeout_nsec = deadline,
			.count_handles = 1,
			.flags = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT,
		};

		return call(fd, DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT, &arg);
	}
	struct drm_syncobj_wait arg = {
		.handles = (uintptr_t)&handle,
		.timeout_nsec = deadline,
		.count_handles = 1,
		.flags = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT,
	};

	return call(fd, DRM_IOCTL_SYNCOBJ_WAIT, &arg);
}

int syncobj_signal(int fd, uint32_t handle)
{
	struct drm_syncobj_array arg = {.handles = (uintptr_t)&handle, .count_handles = 1};

	return call(fd, DRM_IOCTL_SYNCOBJ_SIGNAL, &arg);
}

int syncobj_signal_point(int fd, uint32_t handle, uint64_t point)
{
	struct drm_syncobj_timeline_array arg = {
		.handles = (uintptr_t)&handle,
		.points = (uintptr_t)&point,
		.count_handles = 1,
	};

	return call(fd, DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL, &arg);
}

int syncobj_reset(int fd, uint32_t handle)
{
	struct drm_syncobj_array arg = {.handles = (uintptr_t)&handle, .count_handles = 1};

	return call(fd, DRM_IOCTL_SYNCOBJ_RESET, &arg);
}

uint64_t must_last_point(int fd, uint32_t handle)
{
	uint64_t point = 0;
	struct drm_syncobj_timeline_array arg = {
		.handles = (uintptr_t)&handle,
		.points = (uintptr_t)&point,
		.count_handles = 1,
	};

	must(call(fd, DRM_IOCTL_SYNCOBJ_QUERY, &arg));
	return point;
}

int must_sync_file(int fd, uint32_t handle)
{
	struct drm_syncobj_handle arg = {
		.handle = handle,
		.flags = DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE,
		.fd = -1,
	};

	must(call(fd, DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD, &arg));
	return arg.fd;
}

uint32_t must_share_syncobj(int from, uint32_t handle, int to)
{
	struct drm_syncobj_handle arg = {.handle = handle, .fd = -1};

	must(call(from, DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD, &arg));
	arg.handle = 0;
	must(call(to, DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, &arg));
	close(arg.fd);
	return arg.handle;
}

int sync_file_status(int sync_file)
{
	struct sync_file_info info = {0};

	must(call(sync_file, SYNC_IOC_FILE_INFO, &info));
	return info.status == 1 ? 0 : info.status == 0 ? 1 : info.status;
}

int fence_status(int fd, uint32_t handle)
{
	int file, status;

	must(syncobj_wait(fd, handle, 0, PATIENCE));
	file = must_sync_file(fd, handle);
	status = sync_file_status(file);
	close(file);
	check(status <= 0);
	return status;
}
